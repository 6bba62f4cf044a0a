//! `sluice pages`: manual pages, and completions for shells, made of the options themselves.

use clap::{Args, Command};
use clap_complete::Shell;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
pub struct PagesArgs {
    /// Where to write them
    dir: PathBuf,
}

pub fn run(args: &PagesArgs, command: Command) -> crate::Result<ExitCode> {
    let dir = &args.dir;
    write(dir, command).map_err(|error| format!("{}: {error}", dir.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn write(dir: &Path, mut command: Command) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(command.clone(), dir)?;
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut command, "sluice", dir)?;
    }
    Ok(())
}
