//! Counts of a run.

use super::end::{End, Phase};
use std::time::Duration;

#[derive(Default)]
pub struct Tally {
    pub rounds: u64,
    kinds: [Kind; End::ALL.len()],
    pub acknowledged: u64,
    pub during: u64,
    /// Transactions of the side record that finished backups were compared with.
    pub compared: u64,
    pub rows: u64,
    pub tables: u64,
    pub falsified: u64,
    pub let_go: Duration,
    pub held_ms: u64,
    pub mib: u64,
}

#[derive(Default)]
struct Kind {
    finished: u64,
    unfinished: u64,
    /// How far the backup was when it, or the server, was ended.
    phases: [u64; Phase::ALL.len()],
}

impl Tally {
    pub fn count(&mut self, end: End, phase: Option<Phase>, is_finished: bool) {
        let Some(at) = End::ALL.iter().position(|one| *one == end) else { return };
        let kind = &mut self.kinds[at];
        *if is_finished { &mut kind.finished } else { &mut kind.unfinished } += 1;
        let phase = Phase::ALL.iter().position(|one| Some(*one) == phase);
        if let Some(phase) = phase {
            kind.phases[phase] += 1;
        }
    }

    pub fn finished(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.finished).sum()
    }

    /// A run of which little was compared says nothing.
    pub fn is_worth_something(&self) -> bool {
        self.finished() >= self.rounds / 3
    }

    pub fn print(&self, seconds: f64) {
        print!("{:20} {:>8} {:>8}   ended in:", "", "finished", "refused");
        Phase::ALL.iter().for_each(|phase| print!(" {}", phase.name()));
        println!();
        for (end, kind) in End::ALL.iter().zip(&self.kinds) {
            print!("{:20} {:8} {:8}            ", end.name(), kind.finished, kind.unfinished);
            for (phase, count) in Phase::ALL.iter().zip(kind.phases) {
                print!(" {count:width$}", width = phase.name().len());
            }
            println!();
        }
        let unfinished: u64 = self.kinds.iter().map(|kind| kind.unfinished).sum();
        println!("{:20} {:8} {:8}", "all", self.finished(), unfinished);
        println!("rounds                        {}", self.rounds);
        println!("acknowledged commits          {}", self.acknowledged);
        println!("  of these beside a backup    {}", self.during);
        println!("transactions compared         {}", self.compared);
        println!("rows compared                 {}", self.rows);
        println!("tables of DDL compared        {}", self.tables);
        println!("falsified records, all found  {}", self.falsified);
        println!("MiB in finished backups       {}", self.mib);
        println!("longest hold of commits, ms   {}", self.held_ms);
        println!("longest until let go of, ms   {}", self.let_go.as_millis());
        println!("seconds                       {seconds:.1}");
    }
}
