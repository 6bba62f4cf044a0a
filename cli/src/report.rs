//! Output for the user.

/// Prints a line. Unlike `println!` it survives a reader that has gone away, as in
/// `sluice ... | head -1`: a command must not stop half-way because of that.
macro_rules! report {
    ($($argument:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($argument)*);
    }};
}
