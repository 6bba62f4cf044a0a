//! The four isolation levels and the two engines.

use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    ReadUncommitted,
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Level {
    pub const ALL: [Level; 4] =
        [Level::ReadUncommitted, Level::ReadCommitted, Level::RepeatableRead, Level::Serializable];

    pub fn name(self) -> &'static str {
        match self {
            Level::ReadUncommitted => "READ UNCOMMITTED",
            Level::ReadCommitted => "READ COMMITTED",
            Level::RepeatableRead => "REPEATABLE READ",
            Level::Serializable => "SERIALIZABLE",
        }
    }

    pub fn parse(name: &str) -> Option<Level> {
        let name = name.trim().replace('-', " ");
        Level::ALL.into_iter().find(|level| level.name().eq_ignore_ascii_case(&name))
    }
}

impl fmt::Display for Level {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(self.name())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    InnoDb,
    Sluice,
}

impl Engine {
    pub const BOTH: [Engine; 2] = [Engine::InnoDb, Engine::Sluice];

    pub fn name(self) -> &'static str {
        match self {
            Engine::InnoDb => "InnoDB",
            Engine::Sluice => "Sluice",
        }
    }

    pub fn parse(name: &str) -> Option<Engine> {
        Engine::BOTH.into_iter().find(|engine| engine.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(self.name())
    }
}
