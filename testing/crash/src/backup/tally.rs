//! Counts of a run.

use super::copy::Expected;
use super::end::{End, Phase};
use super::Link;
use std::time::Duration;

const ROUNDS_A_LINE: u64 = 10;
/// Loose, for machines that others keep busy: twenty threads that want two processors made a hold of 951 ms. A
/// longer one than this has waited for something that a busy machine does not explain.
const HELD_MAX_MS: u64 = 2000;

#[derive(Default)]
pub struct Tally {
    pub rounds: u64,
    /// Of these, ended because the server took GTIDs back.
    pub renumbered: u64,
    full: Kinds,
    increments: Kinds,
    streams: u64,
    chains: u64,
    /// Increments on one full backup, in the longest chain.
    longest: usize,
    /// Of the server, between the backups of a chain.
    pub kills: u64,
    pub restarts: u64,
    pub acknowledged: u64,
    pub during: u64,
    /// Transactions of the side record that finished backups were compared with.
    compared: u64,
    pub rows: u64,
    tables: u64,
    pub falsified: u64,
    pub let_go: Duration,
    /// How long each finished backup held commits, if its program could still say it.
    held_ms: Vec<u64>,
    mib: u64,
    mib_of_increments: u64,
}

#[derive(Default)]
struct Kinds([Kind; End::ALL.len()]);

#[derive(Default)]
struct Kind {
    finished: u64,
    unfinished: u64,
    /// How far the backup was when it, or the server, was ended.
    phases: [u64; Phase::ALL.len()],
}

impl Kinds {
    fn count(&mut self, end: End, phase: Option<Phase>, is_finished: bool) {
        let Some(at) = End::ALL.iter().position(|one| *one == end) else { return };
        let kind = &mut self.0[at];
        *if is_finished { &mut kind.finished } else { &mut kind.unfinished } += 1;
        let phase = Phase::ALL.iter().position(|one| Some(*one) == phase);
        if let Some(phase) = phase {
            kind.phases[phase] += 1;
        }
    }

    fn finished(&self) -> u64 {
        self.0.iter().map(|kind| kind.finished).sum()
    }

    fn unfinished(&self) -> u64 {
        self.0.iter().map(|kind| kind.unfinished).sum()
    }

    fn all(&self) -> u64 {
        self.finished() + self.unfinished()
    }

    fn print(&self, what: &str) {
        print!("{what:20} {:>8} {:>8}   ended in:", "finished", "refused");
        Phase::ALL.iter().for_each(|phase| print!(" {}", phase.name()));
        println!();
        for (end, kind) in End::ALL.iter().zip(&self.0) {
            print!("  {:18} {:8} {:8}            ", end.name(), kind.finished, kind.unfinished);
            for (phase, count) in Phase::ALL.iter().zip(kind.phases) {
                print!(" {count:width$}", width = phase.name().len());
            }
            println!();
        }
        println!("  {:18} {:8} {:8}", "all", self.finished(), self.unfinished());
    }
}

impl Tally {
    pub(super) fn count(&mut self, end: End, link: &Link, is_finished: bool) {
        let kinds = if link.is_increment() { &mut self.increments } else { &mut self.full };
        kinds.count(end, link.seen.phase, is_finished);
        self.streams += u64::from(link.is_stream() && is_finished);
    }

    /// Increments that were tried so far.
    pub fn increments(&self) -> u64 {
        self.increments.all()
    }

    pub(super) fn count_chain(&mut self, links: &[Link]) {
        self.chains += 1;
        let longest = links.iter().map(|link| link.path.len() - 1).max();
        self.longest = self.longest.max(longest.unwrap_or(0));
    }

    /// One that was compared.
    pub(super) fn count_copy(&mut self, link: &Link, expected: &Expected) {
        self.compared += expected.transactions();
        self.tables += expected.record.ddl.tables.len() as u64;
        let word_before = |what: &str| -> u64 {
            let before = link.seen.ended.text.split(what).next().unwrap_or_default();
            before.split_whitespace().last().and_then(|word| word.parse().ok()).unwrap_or(0)
        };
        let mib = word_before(" MiB in ");
        *if link.is_increment() { &mut self.mib_of_increments } else { &mut self.mib } += mib;
        self.held_ms.extend(held_ms(&link.seen.ended.text));
    }

    /// A long run shows how far it has come: each copy so far is as the record.
    pub fn tell(&self, of: u64) {
        if self.rounds % ROUNDS_A_LINE == 0 && self.rounds < of {
            let (full, increments) = (self.full.finished(), self.increments.finished());
            println!(
                "{} of {of} rounds: {full} full backups and {increments} increments compared",
                self.rounds
            );
        }
    }

    /// Why a run fails though no copy differed from the record. One of which little was compared says nothing.
    pub fn complaint(&self) -> Option<String> {
        let is_much = |kinds: &Kinds| kinds.finished() >= kinds.all() / 3;
        if !is_much(&self.full) || !is_much(&self.increments) {
            return Some("less than a third of the backups were finished".into());
        }
        let (_, longest) = self.holds();
        (longest > HELD_MAX_MS)
            .then(|| format!("a backup held commits for {longest} ms, more than {HELD_MAX_MS}"))
    }

    /// The median and the longest hold of commits, in ms.
    fn holds(&self) -> (u64, u64) {
        let mut all = self.held_ms.clone();
        all.sort_unstable();
        let at = |n: usize| all.get(n).copied().unwrap_or(0);
        (at(all.len() / 2), at(all.len().saturating_sub(1)))
    }

    pub fn print(&self, seconds: f64) {
        self.full.print("full backups");
        self.increments.print("increments");
        println!("rounds                        {}", self.rounds);
        println!("  of these chains             {}", self.chains);
        println!("increments in the longest     {}", self.longest);
        println!("finished streams              {}", self.streams);
        println!("kills between increments      {}", self.kills);
        println!("restarts between increments   {}", self.restarts);
        println!("acknowledged commits          {}", self.acknowledged);
        println!("  of these beside a backup    {}", self.during);
        println!("  given up, GTIDs taken back  {}", self.renumbered);
        println!("transactions compared         {}", self.compared);
        println!("rows compared                 {}", self.rows);
        println!("tables of DDL compared        {}", self.tables);
        println!("falsified records, all found  {}", self.falsified);
        println!("MiB in finished backups       {}", self.mib);
        println!("MiB in finished increments    {}", self.mib_of_increments);
        println!("longest until let go of, ms   {}", self.let_go.as_millis());
        println!("seconds                       {seconds:.1}");
        println!("{}", self.summary());
    }

    fn summary(&self) -> String {
        let of = |kinds: &Kinds| {
            format!("{} finished, {} refused", kinds.finished(), kinds.unfinished())
        };
        let (median, longest) = self.holds();
        format!(
            "full backups: {}; increments: {}; commits held by {} of them: median {median} ms, \
             longest {longest} ms",
            of(&self.full),
            of(&self.increments),
            self.held_ms.len()
        )
    }
}

/// How long commits were held, by the words of a backup.
fn held_ms(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("commits were held for ")?;
    rest.split_once(" ms")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_that_is_too_long_fails_the_run() {
        let said = "backup of 40 MiB in b, commits were held for 17 ms; verified";
        assert_eq!((held_ms(said), held_ms("error: stopped")), (Some(17), None));
        let mut tally = Tally { held_ms: vec![30, 2000, 10], ..Tally::default() };
        assert_eq!(tally.holds(), (30, 2000));
        assert_eq!(tally.complaint(), None);
        assert!(tally.summary().ends_with("by 3 of them: median 30 ms, longest 2000 ms"));
        tally.held_ms.push(2001);
        assert!(tally.complaint().is_some_and(|why| why.contains("2001 ms")));
    }
}
