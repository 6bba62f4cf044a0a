//! What the events that have passed say, so that the server need not read them again after a
//! crash: the GTID state after the last group, and the XIDs of the last transactions.
//!
//! The GTID state begins with the list in the header of the file and takes in each group when its
//! end is certain. XIDs are kept for a while only, in two halves; for an XID that is not there
//! the answer says whether it can have been forgotten.

use super::events::Seen;
use super::gtid::Gtid;
use crate::base::codec::{put_u8, put_varint, Reader};
use crate::base::{Lsn, Result};
use crate::os::hash::HashSet;

/// XIDs of half a census. A checkpoint writes at most two halves.
const HALF_XIDS: usize = if cfg!(test) { 16 } else { 1024 };

/// A GTID state of more is not kept.
const GTIDS_MAX: usize = 4096;

/// XIDs of the bytes that were logged from a position on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Half {
    from: Lsn,
    xids: Vec<u64>,
}

/// See the module. `Default`: of a server that has written nothing yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// The file, and its last group end that is contained.
    pub file: u64,
    pub at: u64,
    /// The newest of each domain and server, the most recent last. `None`: not known.
    gtids: Option<Vec<Gtid>>,
    older: Half,
    newer: Half,
}

/// What is known of the transactions that a crash left in doubt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// The binlog has these.
    pub xids: HashSet<u64>,
    /// XIDs in bytes that were logged from here on are all in `xids`. `None`: nothing is known of
    /// others.
    pub all_from: Option<Lsn>,
}

impl Decisions {
    /// Has the binlog the XID `xid`? All prepare records of transactions with it lie at or after
    /// `prepared_from`; zero if nothing is known of that.
    pub fn decide(&self, xid: u64, prepared_from: Lsn) -> Decision {
        match self.xids.contains(&xid) {
            true => Decision::Commit,
            false if self.all_from.is_some_and(|from| prepared_from >= from) => Decision::Rollback,
            false => Decision::Unknown,
        }
    }

    pub fn commit(&mut self, xids: Vec<u64>) {
        self.xids.extend(xids);
    }
}

/// What is known of an XID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The binlog has it.
    Commit,
    /// The binlog does not have it.
    Rollback,
    Unknown,
}

impl Census {
    /// The server goes on after the header of a new file. `None`: it was not only a header, or
    /// not readable.
    pub fn begin_file(&mut self, file: u64, at: u64, gtids: Option<Vec<Gtid>>) {
        let gtids = gtids.filter(|list| list.len() <= GTIDS_MAX);
        (self.file, self.at, self.gtids) = (file, at, gtids);
    }

    /// Bytes have passed that nobody read.
    pub fn lose(&mut self, log_end: Lsn) {
        self.gtids = None;
        self.older = Half { from: log_end, xids: Vec::new() };
        self.newer = self.older.clone();
    }

    /// A group has ended at `at`.
    pub fn end_group(&mut self, at: u64, seen: &[Seen]) {
        self.at = at;
        for event in seen {
            match *event {
                Seen::Xid(xid) => self.newer.xids.push(xid),
                Seen::Gtid(gtid) => self.gtids.iter_mut().for_each(|list| update(list, gtid)),
            }
        }
        self.gtids.take_if(|list| list.len() > GTIDS_MAX);
    }

    /// Forgets XIDs of long ago; those that are logged after `log_end` are still to come.
    pub fn trim(&mut self, log_end: Lsn) {
        if self.newer.xids.len() >= HALF_XIDS {
            let newer = Half { from: log_end, xids: Vec::new() };
            self.older = std::mem::replace(&mut self.newer, newer);
        }
    }

    pub fn gtids(&self) -> Option<&[Gtid]> {
        self.gtids.as_deref()
    }

    /// The XIDs that are here, and from where on in the log they are all.
    pub fn xids(&self) -> (HashSet<u64>, Lsn) {
        let xids = self.older.xids.iter().chain(&self.newer.xids).copied().collect();
        (xids, self.older.from)
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.file);
        put_varint(out, self.at);
        put_u8(out, u8::from(self.gtids.is_some()));
        let gtids = self.gtids.as_deref().unwrap_or_default();
        put_varint(out, gtids.len() as u64);
        for gtid in gtids {
            put_gtid(out, gtid);
        }
        for half in [&self.older, &self.newer] {
            put_varint(out, half.from.0);
            put_varint(out, half.xids.len() as u64);
            half.xids.iter().for_each(|&xid| put_varint(out, xid));
        }
    }

    pub fn read(r: &mut Reader<'_>) -> Result<Census> {
        let (file, at) = (r.varint()?, r.varint()?);
        let is_known = r.u8()? != 0;
        let mut gtids = Vec::new();
        for _ in 0..r.varint()? {
            gtids.push(read_gtid(r)?);
        }
        let (older, newer) = (read_half(r)?, read_half(r)?);
        Ok(Census { file, at, gtids: is_known.then_some(gtids), older, newer })
    }
}

fn read_half(r: &mut Reader<'_>) -> Result<Half> {
    let from = Lsn(r.varint()?);
    let mut xids = Vec::new();
    for _ in 0..r.varint()? {
        xids.push(r.varint()?);
    }
    Ok(Half { from, xids })
}

fn put_gtid(out: &mut Vec<u8>, gtid: &Gtid) {
    for v in [u64::from(gtid.domain), u64::from(gtid.server), gtid.sequence] {
        put_varint(out, v);
    }
}

fn read_gtid(r: &mut Reader<'_>) -> Result<Gtid> {
    let domain = u32::try_from(r.varint()?).map_err(|_| r.fail("domain"))?;
    let server = u32::try_from(r.varint()?).map_err(|_| r.fail("server"))?;
    Ok(Gtid { domain, server, sequence: r.varint()? })
}

pub fn put_seen(out: &mut Vec<u8>, seen: &[Seen]) {
    put_varint(out, seen.len() as u64);
    for event in seen {
        match event {
            Seen::Xid(xid) => {
                put_u8(out, 1);
                put_varint(out, *xid);
            }
            Seen::Gtid(gtid) => {
                put_u8(out, 2);
                put_gtid(out, gtid);
            }
        }
    }
}

pub fn read_seen(r: &mut Reader<'_>) -> Result<Vec<Seen>> {
    let mut seen = Vec::new();
    for _ in 0..r.varint()? {
        seen.push(match r.u8()? {
            1 => Seen::Xid(r.varint()?),
            2 => Seen::Gtid(read_gtid(r)?),
            _ => return Err(r.fail("kind of event")),
        });
    }
    Ok(seen)
}

/// As the server keeps it: one for each domain and server, of a domain the most recent last.
fn update(list: &mut Vec<Gtid>, gtid: Gtid) {
    let same = |g: &Gtid| (g.domain, g.server) == (gtid.domain, gtid.server);
    if let Some(at) = list.iter().rposition(same) {
        list.remove(at);
    }
    list.push(gtid);
}
