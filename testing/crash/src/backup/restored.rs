//! What a backup restores to: a server whose rows are those of the side record, or nothing.

use super::copy::{self, Expected, Facts, DDL_DOMAIN};
use super::end::{To, LIST};
use super::program::Ended;
use super::{connect, Link, Site, Tally};
use crate::kill9::{one, Checked, Plan};
use crate::verify::inject;
use sluice_rig::rng::Rng;
use sluice_rig::server::{last_lines, Launch};
use std::fs;
use std::path::{Path, PathBuf};

impl Site {
    /// Restores a finished backup, and compares all of it with the record.
    pub(super) fn compare(
        &self,
        plan: &Plan,
        link: &Link,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Checked<()> {
        let compared = self.restore(link, rng).and_then(|(launch, text)| {
            let facts = match &link.to {
                To::Dir(dir) => Facts::read(&dir.join(LIST)),
                To::Stream(_) => Facts::of(&text),
            };
            self.compare_with(plan, link, &facts?, &launch, tally)
        });
        compared.map_err(|problems| named(link, problems))?;
        fs::remove_dir_all(self.restored()).map_err(one("removing what was compared"))
    }

    fn compare_with(
        &self,
        plan: &Plan,
        link: &Link,
        facts: &Facts,
        launch: &Launch,
        tally: &mut Tally,
    ) -> Checked<()> {
        let mut found = facts.place.clone();
        found.insert(DDL_DOMAIN, copy::ddl_count(&found, self.setup));
        let problems = copy::missing(&link.seen.before, &found);
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut expected = Expected::at(&self.record, &facts.place, self.setup)?;
        let server = launch.start().map_err(|error| {
            eprintln!("{}", last_lines(&launch.error_log(), 15));
            vec![format!("the server on the copy: {error}")]
        })?;
        let socket = server.socket();
        if let Some(sql) = plan.injection {
            let injected = inject(&mut connect(&socket, "k9")?, sql);
            injected.map_err(|fault| vec![format!("injection: {fault}")])?;
        }
        tally.rows += expected.compare(&socket, &launch.prefix, &launch.data())?;
        tally.falsified += expected.notices(&self.record, &socket)?;
        copy::check_position(&expected, facts, &self.launch.prefix, &self.launch.data())?;
        tally.count_copy(link, &expected);
        Ok(())
    }

    /// A data directory of the backup, for a server that keeps a binlog of its own. Also the program's words.
    fn restore(&self, link: &Link, rng: &mut Rng) -> Checked<(Launch, String)> {
        let launch = Launch { dir: self.restored(), ..self.launch.clone() };
        let target = match rng.one_in(2) {
            true => launch.data(),
            false => launch.dir.clone(),
        };
        fs::create_dir_all(&target).map_err(one("making the target"))?;
        // Without the program's own look at the pages, the comparison alone must find faults.
        let options = if rng.one_in(2) { &["--no-verify"][..] } else { &[] };
        let ended = self.program.restore(&link.path, &launch.data(), options);
        let Ended { status, text } = ended.map_err(one("sluice restore"))?;
        if !status.success() {
            return Err(vec![format!("sluice restore: {status}: {text}")]);
        }
        let dropped =
            text.lines().filter_map(|line| line.split_once("without a definition, dropped: "));
        let users: Vec<_> =
            dropped.filter(|(_, name)| !name.contains("/#sql")).map(|(_, name)| name).collect();
        match users.is_empty() {
            true => Ok((launch, text)),
            false => Err(vec![format!("lost tables, without a definition: {users:?}")]),
        }
    }

    /// Of a stream whose program was killed: is it whole?
    pub(super) fn can_be_restored(&self, link: &Link) -> Checked<bool> {
        let target = self.restored();
        let ended =
            self.program.restore(&link.path, &target, &[]).map_err(one("sluice restore"))?;
        remove_if_there(&target)?;
        Ok(ended.status.success())
    }

    /// What was not finished is no backup, and the target stays empty.
    pub(super) fn refuse(&self, link: &Link, rng: &mut Rng) -> Checked<()> {
        if rng.one_in(2) {
            fs::create_dir(self.restored()).map_err(one("making the target"))?;
        }
        let why = match link.to {
            To::Dir(_) => "no backup, or one that was not finished",
            To::Stream(_) => "the stream ends before the end of the backup",
        };
        let refused = self.is_refused(&link.path, why).map_err(|problems| named(link, problems));
        refused.map_err(|mut problems| {
            problems.push(format!("it was unfinished, ended in {:?}", link.seen.phase));
            problems
        })
    }

    /// An increment without the one that it rests on is refused.
    pub(super) fn refuse_gap(&self, link: &Link) -> Checked<()> {
        if link.path.len() < 3 {
            return Ok(());
        }
        let mut path = link.path.clone();
        path.remove(path.len() - 2);
        self.is_refused(&path, "is an increment on the backup ")
            .map_err(|problems| named(link, problems))
    }

    fn is_refused(&self, path: &[PathBuf], why: &str) -> Checked<()> {
        let target = self.restored();
        let ended = self.program.restore(path, &target, &[]).map_err(one("sluice restore"))?;
        let Ended { status, text } = ended;
        let is_empty = fs::read_dir(&target).map_or(true, |mut entries| entries.next().is_none());
        if status.success() || !is_empty || !text.contains(why) {
            return Err(vec![format!(
                "it is not refused: {status}, the target is empty: {is_empty}: {text}"
            )]);
        }
        remove_if_there(&target)
    }
}

fn named(link: &Link, problems: Vec<String>) -> Vec<String> {
    let shown = link.shown();
    problems.into_iter().map(|problem| format!("backup {shown}: {problem}")).collect()
}

fn remove_if_there(dir: &Path) -> Checked<()> {
    match dir.exists() {
        true => fs::remove_dir_all(dir).map_err(one("removing the target")),
        false => Ok(()),
    }
}
