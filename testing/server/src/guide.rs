//! Commands that a page tells people to run, so that a test runs the same.

use sluice_rig::tool::checkout;

#[track_caller]
fn read(page: &str) -> String {
    match std::fs::read_to_string(checkout().join(page)) {
        Ok(text) => text,
        Err(error) => panic!("{page}: {error}"),
    }
}

/// The first block of shell below the line that begins so, in a page of the checkout.
#[track_caller]
pub fn block(page: &str, below: &str) -> String {
    let text = read(page);
    let lines = text.lines().skip_while(|line| !line.starts_with(below));
    let block = lines.skip_while(|line| *line != "```sh").skip(1);
    let commands: Vec<_> = block.take_while(|line| *line != "```").collect();
    assert!(!commands.is_empty(), "{page} has no commands below a line that begins with {below}");
    commands.join("\n")
}

/// The lines that are set in between the lines that begin so, in a plain text of the checkout.
#[track_caller]
pub fn set_in(page: &str, from: &str, to: &str) -> String {
    let text = read(page);
    let lines = text.lines().skip_while(|line| !line.starts_with(from));
    let section = lines.take_while(|line| !line.starts_with(to));
    let commands: Vec<_> = section.filter_map(|line| line.strip_prefix("  ")).collect();
    assert!(!commands.is_empty(), "{page} has no commands from {from} to {to}");
    commands.join("\n")
}
