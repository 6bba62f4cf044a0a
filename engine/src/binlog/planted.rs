//! Bugs on purpose in the start, for the room's own tests: each must be found by them. Outside of
//! tests the answers are a constant no.

/// What a start can do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A start that could not complete the files says that they are complete.
    RefusedIsSettled,
    /// All bytes after the log's end are cut.
    CutUnseen,
    /// The files are completed before the index forgets those of a start without the plugin.
    IndexLate,
    /// The file is marked as closed before its GTID state is written.
    ClosedBeforeState,
    /// The switch is ON before the mark is there.
    MarkLate,
    /// The authority ends before the files are synced.
    SettledBeforeSync,
    /// The log says that a file was synced, which was not.
    NotedUnsynced,
    /// A file that is shorter than what was synced is completed from its last sync on.
    OlderFileUnseen,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants the bug in what this thread does from now on.
#[cfg(test)]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

#[cfg(test)]
pub fn is(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

#[cfg(not(test))]
#[inline(always)]
pub const fn is(_bug: Bug) -> bool {
    false
}
