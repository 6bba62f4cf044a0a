//! The command line of `sluice-diff types`.

use super::{values, Case};
use std::path::PathBuf;

pub const USAGE: &str = "\
       sluice-diff types [options]            every type and collation, each with its kinds of keys
  --quick           a share for every day: some types, a collation of each kind, fewer keys
  --seed N          for the random values (1)
  --only TEXT       only cases whose name contains TEXT
  --from TEXT       only from the first case on whose name contains TEXT
  --part K/N        every N-th case from the K-th on, for runs side by side
  --keys NAME,...   of collations only these kinds of keys
  --prefix P, --dir D, --keep   as above";

pub struct Options {
    pub quick: bool,
    pub seed: u64,
    only: String,
    from: String,
    part: usize,
    parts: usize,
    keys: String,
    pub prefix: Option<PathBuf>,
    pub dir: PathBuf,
    pub keep: bool,
}

pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        quick: false,
        seed: 1,
        only: String::new(),
        from: String::new(),
        part: 1,
        parts: 1,
        keys: String::new(),
        prefix: None,
        dir: PathBuf::new(),
        keep: false,
    };
    while let Some(name) = args.next() {
        match name.as_str() {
            "--quick" => options.quick = true,
            "--keep" => options.keep = true,
            _ => {
                let value = args.next().ok_or(format!("{name} needs a value"))?;
                options.set(&name, value)?;
            }
        }
    }
    Ok(options)
}

impl Options {
    fn set(&mut self, name: &str, value: String) -> Result<(), String> {
        let bad = || format!("{name} {value}: not understood");
        match name {
            "--seed" => self.seed = value.parse().map_err(|_| bad())?,
            "--part" => (self.part, self.parts) = part(&value).ok_or_else(bad)?,
            "--only" => self.only = value,
            "--from" => self.from = value,
            "--keys" => self.keys = value,
            "--prefix" => self.prefix = Some(value.into()),
            "--dir" => self.dir = value.into(),
            _ => return Err(format!("unknown option {name}")),
        }
        Ok(())
    }

    pub fn keys_of_collations(&self) -> Vec<String> {
        let names: Vec<&str> = match (self.keys.as_str(), self.quick) {
            ("", true) => values::QUICK_KEYS.into(),
            ("", false) => values::COLLATION_KEYS.into(),
            (keys, _) => keys.split(',').collect(),
        };
        names.into_iter().map(str::to_owned).collect()
    }

    pub fn chosen(&self, cases: Vec<Case>) -> Vec<Case> {
        let from = cases.into_iter().skip_while(|case| !case.name.contains(&self.from));
        let found = from.filter(|case| case.name.contains(&self.only));
        found.skip(self.part - 1).step_by(self.parts).collect()
    }
}

fn part(text: &str) -> Option<(usize, usize)> {
    let (part, parts) = text.split_once('/')?;
    let (part, parts) = (part.parse().ok()?, parts.parse().ok()?);
    (1..=parts).contains(&part).then_some((part, parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(args: &[&str]) -> Vec<String> {
        let args = args.iter().map(|arg| (*arg).to_owned());
        let cases = ["type int", "type text", "collation utf8mb4_bin", "collation latin1_bin"];
        let case = |name: &str| Case { name: name.into(), columns: Vec::new() };
        let chosen = parse(args).unwrap().chosen(cases.map(case).into());
        chosen.into_iter().map(|case| case.name).collect()
    }

    #[test]
    fn cases_are_chosen_by_name_and_part() {
        assert_eq!(chosen(&[]).len(), 4);
        assert_eq!(chosen(&["--only", "_bin", "--from", "latin1"]), ["collation latin1_bin"]);
        assert_eq!(chosen(&["--part", "2/2"]), ["type text", "collation latin1_bin"]);
        assert!(part("3/2").is_none() && part("0/2").is_none() && part("2").is_none());
    }
}
