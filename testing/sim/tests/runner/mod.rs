//! Runs tests as the standard harness does and prints its lines. That harness asks for the panic
//! hook when all is done, which the frozen threads of a failed run never give back: it would hang.
//! This one leaves the process.

use std::panic::catch_unwind;
use std::process::exit;
use std::sync::atomic::{AtomicUsize, Ordering};

pub type Test = (&'static str, fn());

#[macro_export]
macro_rules! tests {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), $name as fn())),*] };
}

/// Runs all tests, or those whose name contains the first argument that is no option, on all cores.
pub fn run(tests: &[Test]) -> ! {
    let filter = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    let chosen: Vec<Test> = tests.iter().copied().filter(|t| t.0.contains(&filter)).collect();
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    println!("\nrunning {} tests", chosen.len());
    let work = || {
        while let Some((name, test)) = chosen.get(next.fetch_add(1, Ordering::SeqCst)) {
            let passed = catch_unwind(test).is_ok();
            println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
            failed.fetch_add(usize::from(!passed), Ordering::SeqCst);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner();
    println!(
        "\ntest result: {}. {} passed; {failed} failed; 0 ignored; 0 measured; {} filtered out\n",
        if failed == 0 { "ok" } else { "FAILED" },
        chosen.len() - failed,
        tests.len() - chosen.len(),
    );
    exit(i32::from(failed > 0) * 101)
}
