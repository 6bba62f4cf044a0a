//! Tests that share a real server, run one after the other in the order of their list.
//!
//! cargo's own runner has no order, no end at which a server can be stopped, and no way for a test to
//! find out that this machine cannot run it. The words printed are its words, so one program counts both.
//!
//! A test asks for the state that it needs and gets the server that the test before left where that
//! will do: each one also runs alone.

use std::io::Write;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::process::ExitCode;
use std::time::Instant;

pub type Test<W> = (&'static str, fn(&mut W));

/// A list of tests by the names of their functions.
#[macro_export]
macro_rules! tests {
    ($($name:path),* $(,)?) => { [$((stringify!($name), $name as fn(&mut _))),*] };
}

struct Skipped(String);

/// Ends a test that this machine cannot run, and says why.
pub fn skip(why: impl Into<String>) -> ! {
    resume_unwind(Box::new(Skipped(why.into())))
}

#[derive(Default)]
struct Choice {
    filters: Vec<String>,
    exact: bool,
    list: bool,
}

impl Choice {
    fn parse(args: impl Iterator<Item = String>) -> Result<Choice, String> {
        let mut choice = Choice::default();
        for arg in args {
            match arg.as_str() {
                "--exact" => choice.exact = true,
                "--list" => choice.list = true,
                // Nothing is captured, and one test runs at a time.
                "--nocapture" | "--test-threads=1" => {}
                _ if arg.starts_with('-') => {
                    return Err(format!("{arg}: only --list, --exact and parts of names"));
                }
                _ => choice.filters.push(arg),
            }
        }
        Ok(choice)
    }

    fn has(&self, name: &str) -> bool {
        let fits = |f: &String| if self.exact { name == f } else { name.contains(f.as_str()) };
        self.filters.is_empty() || self.filters.iter().any(fits)
    }
}

#[derive(Default)]
struct Count {
    passed: usize,
    failed: Vec<&'static str>,
    skipped: usize,
    filtered_out: usize,
}

/// Runs those of `tests` that the command line names in the world that `make` makes. Without one,
/// because there is nothing to test with, nothing has passed: an error that says what is missing.
pub fn run<W>(tests: &[Test<W>], make: impl FnOnce() -> Result<W, String>) -> ExitCode {
    let choice = match Choice::parse(std::env::args().skip(1)) {
        Ok(choice) => choice,
        Err(problem) => return cannot_run(&problem),
    };
    if choice.list {
        tests.iter().filter(|t| choice.has(t.0)).for_each(|t| println!("{}: test", t.0));
        return ExitCode::SUCCESS;
    }
    let mut world = match make() {
        Ok(world) => world,
        Err(problem) => return cannot_run(&problem),
    };
    let started = Instant::now();
    let mut count = Count::default();
    for test in tests {
        match choice.has(test.0) {
            true => run_one(test, &mut world, &mut count),
            false => count.filtered_out += 1,
        }
    }
    drop(world);
    report(&count, started.elapsed().as_secs_f64())
}

fn cannot_run(problem: &str) -> ExitCode {
    eprintln!("error: {problem}");
    ExitCode::from(2)
}

fn run_one<W>(&(name, test): &Test<W>, world: &mut W, count: &mut Count) {
    print!("test {name} ... ");
    let _ = std::io::stdout().flush();
    let started = Instant::now();
    let ended = catch_unwind(AssertUnwindSafe(|| test(world)));
    let seconds = started.elapsed().as_secs_f64();
    match ended {
        Ok(()) => {
            count.passed += 1;
            println!("ok ({seconds:.1} s)");
        }
        Err(payload) => match payload.downcast_ref::<Skipped>() {
            Some(Skipped(why)) => {
                count.skipped += 1;
                println!("ignored, {why}");
            }
            None => {
                count.failed.push(name);
                println!("FAILED ({seconds:.1} s)");
            }
        },
    }
}

fn report(count: &Count, seconds: f64) -> ExitCode {
    let Count { passed, failed, skipped, filtered_out } = count;
    for name in failed {
        println!("failed: {name}");
    }
    // A name with a mistake in it must not look like a success.
    let is_good = failed.is_empty() && passed + skipped > 0;
    let verdict = if is_good { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {passed} passed; {} failed; {skipped} ignored; 0 measured; \
         {filtered_out} filtered out; finished in {seconds:.2}s",
        failed.len()
    );
    if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adds(world: &mut Vec<u8>) {
        world.push(1);
    }
    fn fails(_: &mut Vec<u8>) {
        resume_unwind(Box::new("an assertion"));
    }
    fn cannot(_: &mut Vec<u8>) {
        skip("no moon");
    }

    #[test]
    fn a_test_passes_fails_or_is_skipped() {
        let (mut world, mut count) = (Vec::new(), Count::default());
        for test in &tests![adds, fails, cannot, adds] {
            run_one(test, &mut world, &mut count);
        }
        assert_eq!((count.passed, count.failed, count.skipped), (2, vec!["fails"], 1));
        assert_eq!(world.len(), 2);
    }

    #[test]
    fn names_choose_tests() {
        let choice = |args: &[&str]| Choice::parse(args.iter().map(|a| (*a).to_owned()));
        assert!(choice(&[]).is_ok_and(|c| c.has("w02_waits")));
        assert!(choice(&["w02", "w05"]).is_ok_and(|c| c.has("w02_waits") && !c.has("w06_flushes")));
        assert!(choice(&["--exact", "w02"]).is_ok_and(|c| !c.has("w02_waits") && c.has("w02")));
        assert!(choice(&["--shuffle"]).is_err());
    }

    #[test]
    fn nothing_run_is_no_success() {
        assert_eq!(report(&Count::default(), 0.0), ExitCode::FAILURE);
        let skipped = Count { skipped: 1, ..Count::default() };
        assert_eq!(report(&skipped, 0.0), ExitCode::SUCCESS);
    }
}
