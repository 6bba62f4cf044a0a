//! Does a thread of a server sleep, as the kernel counts? A server's own word that a thread waits is
//! true for a moment longer: the grant has come, and the thread has not run yet.

use std::fs;

/// How often the thread has gone to sleep by itself, if it sleeps now. Two equal answers: it was not
/// awake between them.
pub fn asleep(thread_id: u32) -> Option<u64> {
    sleeps(&fs::read_to_string(format!("/proc/{thread_id}/status")).ok()?)
}

fn sleeps(status: &str) -> Option<u64> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    if !field("State:")?.trim().starts_with('S') {
        return None;
    }
    field("voluntary_ctxt_switches:")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sleeping_thread_counts() {
        let status = "Name:\tx\nState:\tS (sleeping)\nvoluntary_ctxt_switches:\t17\n";
        assert_eq!(sleeps(status), Some(17));
        assert_eq!(sleeps(&status.replace("S (s", "R (s")), None);
    }
}
