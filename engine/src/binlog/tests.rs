//! A server that writes a binlog on a simulated machine: rotation, overflows of its buffer, large
//! groups, the switch, faults, checkpoints, power cuts at any call, also during completion.
//! Afterwards every acknowledged group is in its file, and while authority was on nothing but at
//! most the one group that was being made durable.

use super::census::{Census, Decisions};
use super::complete::Known;
use super::events::Seen;
use super::gtid::Gtid;
use super::index::Index;
use super::live::{GROUP_COPY_BYTES_MAX, RELAXED_COPY_BYTES_MAX};
use super::*;
use crate::base::{Lsn, Result};
use crate::os::sim::{Fault, SimOs, SimRng};
use crate::os::{File, OpenMode, Os};
use crate::wal::{Wal, WalAnchor, WalOptions};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub const INDEX: &str = "/bin.index";
pub const BASE: &str = "/bin";

const DIR: &str = "/log";

pub fn options() -> WalOptions {
    WalOptions { segment_bytes: 64 << 10, capacity_bytes: 1 << 20, ..WalOptions::new(DIR) }
}

pub fn files() -> Option<(&'static Path, &'static Path)> {
    Some((Path::new(INDEX), Path::new(BASE)))
}

/// An event of this type and length, filled with something random.
pub fn event(rng: &mut SimRng, kind: u8, body: usize) -> Vec<u8> {
    let mut out: Vec<u8> = (0..19 + body).map(|_| rng.next_u64() as u8).collect();
    let length = (out.len() as u32).to_le_bytes();
    out[4] = kind;
    out[9..13].copy_from_slice(&length);
    out
}

/// The list of GTIDs in a file's header.
fn gtid_list(rng: &mut SimRng, gtids: &[Gtid]) -> Vec<u8> {
    let mut out = event(rng, 163, 4 + 16 * gtids.len());
    let mut body = (gtids.len() as u32).to_le_bytes().to_vec();
    for gtid in gtids {
        body.extend(gtid.domain.to_le_bytes());
        body.extend(gtid.server.to_le_bytes());
        body.extend(gtid.sequence.to_le_bytes());
    }
    out[19..].copy_from_slice(&body);
    out
}

/// What the server's scan of a file finds: GTID state, XIDs.
pub fn scan(bytes: &[u8]) -> (Vec<Gtid>, Vec<u64>) {
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (mut gtids, mut xids, mut begun) = (Vec::<Gtid>::new(), Vec::new(), None);
    let mut at = 4;
    while at + 19 <= bytes.len() && at + u32_at(at + 9) as usize <= bytes.len() {
        let body = at + 19;
        // Holes of a file that was not completed.
        if (u32_at(at + 9) as usize) < 19 {
            break;
        }
        match bytes[at + 4] {
            163 => {
                let list = (0..u32_at(body) as usize).map(|n| body + 4 + 16 * n);
                let read =
                    |g| Gtid { domain: u32_at(g), server: u32_at(g + 4), sequence: u64_at(g + 8) };
                gtids = list.map(read).collect();
            }
            162 => {
                let (domain, server) = (u32_at(body + 8), u32_at(at + 5));
                begun = Some(Gtid { domain, server, sequence: u64_at(body) });
            }
            16 => {
                xids.push(u64_at(body));
                let now: Option<Gtid> = begun.take();
                gtids.retain(|g| now.is_none_or(|n| (g.domain, g.server) != (n.domain, n.server)));
                gtids.extend(now);
            }
            _ => {}
        }
        at += u32_at(at + 9) as usize;
    }
    (gtids, xids)
}

/// What must be in a file.
#[derive(Default, Clone)]
pub struct Content {
    pub bytes: Vec<u8>,
    pub acknowledged: usize,
    /// Nothing after `acknowledged` but the group under way: the log has authority.
    pub exact: bool,
}

pub struct Server {
    pub os: Arc<SimOs>,
    pub rng: SimRng,
    pub wal: Arc<Wal>,
    pub binlog: Arc<Binlog>,
    pub anchor: WalAnchor,
    pub note: Vec<u8>,
    pub index: Vec<String>,
    pub files: BTreeMap<String, Content>,
    pub current: String,
    pub next_number: u32,
    pub on: bool,
    /// What sync_binlog and the flush mode ask for.
    pub durable: bool,
    pub lives: u32,
    pub next_xid: u64,
    pub next_sequence: u64,
    /// Of this life of the server: XIDs, each with its prepare record.
    pub xids: Vec<(u64, Lsn)>,
    /// The last of them is of a group with a fault: nothing is said of it after the next file begins.
    pub is_last_lost: bool,
    /// Restarts after which nothing had to be scanned.
    pub known: u32,
}

impl Server {
    pub fn new(seed: u64) -> Server {
        let os = SimOs::new(seed);
        os.create_dir(Path::new("/")).unwrap();
        let wal = Wal::create(os.clone(), options()).unwrap();
        let binlog = Binlog::new(os.clone(), wal.clone(), BinlogRecovery::default());
        let anchor = WalAnchor { scan_from: wal.end(), durable: wal.end() };
        binlog.start(Setting { files: files(), ..Setting::default() }).unwrap();
        binlog.prepare_switch().unwrap();
        Server {
            os,
            rng: SimRng::new(seed ^ 0xb1_06),
            wal,
            binlog,
            anchor,
            note: Vec::new(),
            index: Vec::new(),
            files: BTreeMap::new(),
            current: String::new(),
            next_number: 1,
            on: true,
            durable: true,
            lives: 0,
            next_xid: 1,
            next_sequence: 1,
            xids: Vec::new(),
            is_last_lost: false,
            known: 0,
        }
    }

    pub fn file(&self) -> Result<Arc<dyn File>> {
        self.os.open(Path::new(&self.current), OpenMode::default())
    }

    pub fn content(&mut self) -> &mut Content {
        self.files.get_mut(&self.current).expect("the current file")
    }

    pub fn name(&mut self, name: &str) -> Result<()> {
        let path = Path::new(INDEX);
        let mode = OpenMode { create: !self.os.exists(path)?, direct: false };
        let file = self.os.open(path, mode)?;
        file.write_at(format!("{name}\n").as_bytes(), file.len()?)?;
        file.sync()?;
        self.os.sync_dir(Path::new("/"))
    }

    /// The header of a new file.
    pub fn header(&mut self, gtids: &[Gtid]) -> Vec<u8> {
        let mut header = b"\xfebin".to_vec();
        header.extend(event(&mut self.rng, 15, 30));
        // In use.
        header[21] |= 1;
        header.extend(gtid_list(&mut self.rng, gtids));
        header.extend(event(&mut self.rng, 161, 30));
        header
    }

    /// A new file: header, sync, hook, index; as the server does it.
    pub fn rotate(&mut self) -> Result<()> {
        if !self.current.is_empty() {
            let goodbye = event(&mut self.rng, 4, 10);
            self.group(goodbye, 64)?;
            self.file()?.sync()?;
        }
        let last = self.index.last().map(|name| scan(&self.files[name].bytes).0);
        let name = format!("/bin.{:06}", self.next_number);
        self.next_number += 1;
        let header = self.header(&last.unwrap_or_default());
        let file = self.os.open(Path::new(&name), OpenMode { create: true, direct: false })?;
        file.write_at(&header, 0)?;
        let length = header.len();
        self.binlog.opened(&name, length as u64)?;
        file.sync()?;
        self.os.sync_dir(Path::new("/"))?;
        let content = Content { bytes: header, acknowledged: length, exact: self.on };
        self.files.insert(name.clone(), content);
        self.name(&name)?;
        self.index.push(name.clone());
        self.current = name;
        Ok(())
    }

    /// Writes bytes through a buffer of `buffer` bytes, and acknowledges them at the end.
    pub fn group(&mut self, bytes: Vec<u8>, buffer: usize) -> Result<()> {
        let file = self.file()?;
        let mut at = self.content().bytes.len();
        self.content().bytes.extend_from_slice(&bytes);
        let mut rest = &bytes[..];
        let mut is_direct = false;
        loop {
            // A full buffer, then maybe the rest of a long event past it, then the last part.
            let n = if is_direct { rest.len() - 1 } else { rest.len().min(buffer) };
            let (now, later) = rest.split_at(n);
            let is_full = !is_direct && n == buffer;
            self.binlog.before_write()?;
            file.write_at(now, at as u64)?;
            let write = Write {
                pos: at as u64,
                bytes: now,
                is_direct,
                is_full,
                has_failed: false,
                durable: self.durable,
            };
            let verdict = self.binlog.wrote(write)?;
            (at, rest) = (at + n, later);
            if rest.is_empty() {
                if verdict != Verdict::Durable {
                    assert_ne!(verdict, Verdict::Inside, "a group ends");
                    file.sync()?;
                }
                let content = self.content();
                content.acknowledged = at;
                return Ok(());
            }
            is_direct = !is_direct && is_full && rest.len() > 2 * buffer && self.rng.chance(50);
        }
    }

    pub fn transaction(&mut self, body: usize) -> Result<()> {
        let xid = self.next_xid;
        self.next_xid += 1;
        let prepare = self.wal.append(4, &[&xid.to_le_bytes()]);
        self.binlog.note_unflushed_prepare(prepare.end);
        self.xids.push((xid, prepare.lsn));
        self.is_last_lost = false;
        let mut bytes = event(&mut self.rng, 162, 20);
        bytes[5..9].copy_from_slice(&(1 + self.rng.below(3) as u32).to_le_bytes());
        bytes[19..27].copy_from_slice(&self.next_sequence.to_le_bytes());
        bytes[27..31].copy_from_slice(&(self.rng.below(3) as u32).to_le_bytes());
        // Alone in its commit group.
        bytes[31] &= !2;
        self.next_sequence += 1;
        for _ in 0..1 + self.rng.below(3) {
            bytes.extend(event(&mut self.rng, 30, body));
        }
        bytes.extend(event(&mut self.rng, 16, 8));
        let at = bytes.len() - 8;
        bytes[at..].copy_from_slice(&xid.to_le_bytes());
        let buffer = 100 + self.rng.below(900) as usize;
        // Never exactly the buffer: that end is told by the last event's type, and tested below.
        self.group(bytes, buffer)
    }

    pub fn checkpoint(&mut self) -> Result<()> {
        let end = self.wal.end();
        let (note, pin) = self.binlog.note_and_pin();
        self.wal.flush_to(self.wal.end())?;
        let scan_from = pin.map_or(end, |pin| pin.min(end));
        self.note = note;
        self.anchor = WalAnchor { scan_from, durable: self.wal.durable() };
        self.wal.retain_from(scan_from);
        Ok(())
    }

    pub fn switch(&mut self) -> Result<()> {
        self.on = !self.on;
        if !self.on {
            self.content().exact = false;
        }
        if self.on {
            self.binlog.prepare_switch()?;
        }
        self.binlog.switch(self.on)?;
        self.binlog.remove_mark()?;
        self.content().exact = self.on;
        Ok(())
    }

    /// Bytes that the hook never saw: the next group is a fault, and made durable by a sync.
    pub fn slip(&mut self) -> Result<()> {
        let bytes = event(&mut self.rng, 2, 30);
        let file = self.file()?;
        let at = self.content().bytes.len();
        file.write_at(&bytes, at as u64)?;
        self.content().exact = false;
        self.content().bytes.extend(bytes);
        let slipped = self.transaction(20);
        self.is_last_lost = true;
        slipped?;
        let on = self.on;
        self.content().exact = on;
        Ok(())
    }

    pub fn step(&mut self) -> Result<()> {
        match self.rng.below(20) {
            0 => self.rotate(),
            1 => self.switch(),
            2 => self.slip(),
            3 | 4 => self.checkpoint(),
            5..=7 => self.binlog.sync_step(),
            8 => self.transaction(9000),
            9 => self.transaction(GROUP_COPY_BYTES_MAX as usize),
            n => self.transaction(10 + 50 * n as usize),
        }
    }

    /// Recovers and completes, maybe with power cuts on the way.
    pub fn restart(&mut self) {
        self.lives += 1;
        for attempt in 0.. {
            self.os.crash();
            if attempt < 3 && self.rng.chance(40) {
                self.os.fail_after(self.rng.below(12), Fault::PowerCut);
            }
            let recovered = self.recover();
            if recovered.is_ok() {
                return self.os.clear_fault();
            }
            assert!(attempt < 3, "recovery fails without a fault: {recovered:?}");
        }
    }

    /// Opens the log, as the engine does.
    pub fn open(&mut self) -> Result<()> {
        let mut found = BinlogRecovery::new(&self.note)?;
        self.wal = Wal::recover(self.os.clone(), options(), self.anchor, &mut |lsn, record| {
            match BinlogRecovery::owns(record.kind) {
                true => found.visit(lsn, record),
                false => Ok(()),
            }
        })?;
        self.binlog = Binlog::new(self.os.clone(), self.wal.clone(), found);
        Ok(())
    }

    /// Starts as the server should.
    pub fn start(&mut self) -> Result<Completion> {
        let done = self.binlog.start(Setting { files: files(), ..Setting::default() })?;
        self.index = Index::read(&*self.os, Path::new(INDEX), false)?.names;
        let named = &self.index;
        self.files.retain(|name, _| named.contains(name));
        Ok(done)
    }

    pub fn recover(&mut self) -> Result<()> {
        let mark = self.os.exists(Path::new("/bin.sluice"))?;
        self.open()?;
        let is_held = self.binlog.recovered.lock().is_some();
        assert!(mark || !is_held, "the log holds the end, and no mark says so");
        let done = self.start()?;
        let is_expected = |w: &String| w.contains("removed from") || w.contains("without Sluice");
        assert!(done.warnings.iter().all(is_expected), "{done:?}");
        if let Ok(known) = &done.known {
            self.compare_with_scan(known, &done.decisions);
            if !done.is_closed && self.rng.chance(50) {
                self.binlog.close_completed()?;
            }
        }
        if self.on {
            self.binlog.prepare_switch()?;
        }
        self.binlog.switch(self.on)?;
        self.binlog.remove_mark()
    }

    /// What a server without the plugin goes by: the flag, the file beside the binlog, the scan.
    pub fn state_of_server(&self) -> Option<Vec<Gtid>> {
        let name = self.index.last()?;
        let file = self.os.open(Path::new(name), OpenMode::default()).unwrap();
        if super::events::is_in_use(&*file).unwrap() {
            return Some(scan(&self.bytes_of(name)).0);
        }
        let text =
            super::files::read(&*self.os, Path::new("/bin.state")).unwrap().unwrap_or_default();
        let line = |line: &str| {
            let mut n = line.split('-').map(|n| n.parse::<u64>().unwrap());
            let mut next = || n.next().unwrap();
            Gtid { domain: next() as u32, server: next() as u32, sequence: next() }
        };
        Some(String::from_utf8(text).unwrap().lines().map(line).collect())
    }

    pub fn bytes_of(&self, name: &str) -> Vec<u8> {
        super::files::read(&*self.os, Path::new(name)).unwrap().unwrap()
    }

    /// The server would have found out the same, and no XID in any file is thought to be absent.
    pub fn compare_with_scan(&mut self, known: &Known, decisions: &Decisions) {
        self.known += 1;
        assert_eq!(Some(&known.path), self.index.last());
        let mut in_files = Vec::new();
        for name in &self.index {
            let file = self.os.open(Path::new(name), OpenMode::default()).unwrap();
            let mut bytes = vec![0; file.len().unwrap() as usize];
            file.read_at(&mut bytes, 0).unwrap();
            let (gtids, xids) = scan(&bytes);
            in_files.extend(xids);
            if *name == known.path {
                let of = |domain| gtids.iter().filter(move |g| g.domain == domain);
                let found = |domain| known.gtids.iter().filter(move |g| g.domain == domain);
                (0..3).for_each(|d| assert!(of(d).eq(found(d)), "{gtids:?} {known:?}"));
            }
        }
        for &(xid, prepared) in &self.xids {
            let (never, from) = match in_files.contains(&xid) {
                true => (Decision::Rollback, Lsn(u64::MAX)),
                false => (Decision::Commit, Lsn::ZERO),
            };
            for from in [Lsn::ZERO, prepared, from.min(prepared)] {
                assert_ne!(decisions.decide(xid, from), never, "XID {xid}");
            }
        }
        // Of the last one it is known what became of it.
        if let Some(&(xid, prepared)) = self.xids.last().filter(|_| !self.is_last_lost) {
            assert_ne!(decisions.decide(xid, prepared), Decision::Unknown, "XID {xid}");
        }
    }

    /// Every acknowledged GTID is in the state that the server goes on with.
    pub fn check_gtids(&self) {
        let Some(found) = self.state_of_server() else { return };
        let files = self.files.values().map(|c| scan(&c.bytes[..c.acknowledged]).0);
        let wanted: Vec<Gtid> = files.flatten().collect();
        for gtid in wanted {
            let same = |g: &&Gtid| (g.domain, g.server) == (gtid.domain, gtid.server);
            let now = found.iter().find(same).map_or(0, |g| g.sequence);
            assert!(now >= gtid.sequence, "{gtid:?} would be used twice: {found:?}");
        }
    }

    /// As after every start, the server opens a new file.
    pub fn go_on(&mut self) {
        self.current.clear();
        self.xids.clear();
        self.next_xid = 1000 * u64::from(self.lives);
        self.rotate().unwrap();
    }

    pub fn check(&mut self) {
        self.check_gtids();
        for (name, content) in &mut self.files {
            let file = self.os.open(Path::new(name), OpenMode::default()).unwrap();
            let length = file.len().unwrap() as usize;
            let kept = content.acknowledged;
            assert!(length >= kept, "{name}: {length} bytes of {kept}");
            let mut bytes = vec![0; length];
            file.read_at(&mut bytes, 0).unwrap();
            // A start may say whether the file was closed.
            (bytes[21], content.bytes[21]) = (bytes[21] | 1, content.bytes[21] | 1);
            assert!(bytes[..kept] == content.bytes[..kept], "{name}: acknowledged bytes differ");
            let whole = content.bytes.len();
            if content.exact {
                assert!(length == kept || length == whole, "{name}: {length}, {kept} or {whole}");
                assert!(bytes[..] == content.bytes[..length], "{name}: bytes nobody wrote");
            }
            content.bytes = bytes;
            content.acknowledged = length;
            content.exact = false;
        }
    }
}

fn run(seed: u64) -> u32 {
    let mut server = Server::new(seed);
    server.binlog.switch(true).unwrap();
    server.rotate().unwrap();
    for _ in 0..4 {
        let calls = server.rng.below(150);
        server.os.fail_after(calls, Fault::PowerCut);
        while server.step().is_ok() {}
        server.restart();
        server.check();
        server.go_on();
    }
    server.known
}

#[test]
fn what_was_acknowledged_survives_power_cuts() {
    let known: u32 = (0..150).map(run).sum();
    assert!(known > 150, "only {known} of 600 restarts knew what the server would scan for");
}

/// More XIDs than are kept: those that were dropped are unknown, never absent.
#[test]
fn forgotten_xids_are_unknown() {
    let mut census = Census::default();
    census.begin_file(1, 4, Some(Vec::new()));
    for xid in 1..=100 {
        census.end_group(100 * xid, &[Seen::Xid(xid)]);
        census.trim(Lsn(10 * xid + 1));
    }
    let (xids, all_from) = census.xids();
    assert!(xids.contains(&100) && !xids.contains(&1));
    assert!((all_from.0..1000).step_by(10).all(|lsn| xids.contains(&(lsn / 10 + 1))));
    assert!(all_from > Lsn(500) && xids.len() < 40, "{all_from:?}");
}

/// Trap (a): a group that ends exactly with a full buffer looks like an overflow.
#[test]
fn a_group_that_fills_the_buffer_exactly_is_durable() {
    let mut server = Server::new(7);
    server.binlog.switch(true).unwrap();
    server.rotate().unwrap();
    let mut bytes = event(&mut server.rng, 162, 20);
    bytes.extend(event(&mut server.rng, 16, 8));
    let exactly = bytes.len();
    server.group(bytes, exactly).unwrap();
    server.restart();
    server.check();
    // An event that never ends a group, at the end of a full buffer, is an overflow.
    server.current.clear();
    server.rotate().unwrap();
    let rows = event(&mut server.rng, 30, 81);
    server.binlog.before_write().unwrap();
    let pos = server.content().bytes.len() as u64;
    let full = Write {
        pos,
        bytes: &rows,
        is_direct: false,
        is_full: true,
        has_failed: false,
        durable: true,
    };
    assert_eq!(server.binlog.wrote(full).unwrap(), Verdict::Inside);
}

/// A group too large for the log is synced in the background while it is written.
#[test]
fn a_large_group_is_synced_as_it_grows() {
    let mut server = Server::new(8);
    server.binlog.switch(true).unwrap();
    server.rotate().unwrap();
    let syncs = |server: &Server| {
        let all = server.binlog.status();
        all.iter().find(|(name, _)| *name == "binlog_file_syncs").unwrap().1
    };
    let mut pos = server.content().bytes.len() as u64;
    for round in 0..4 {
        let before = syncs(&server);
        for _ in 0..GROUP_COPY_BYTES_MAX / 4096 + 16 {
            let rows = event(&mut server.rng, 30, 4096);
            let write = Write {
                pos,
                bytes: &rows,
                is_direct: false,
                is_full: true,
                has_failed: false,
                durable: true,
            };
            server.file().unwrap().write_at(&rows, pos).unwrap();
            assert_eq!(server.binlog.wrote(write).unwrap(), Verdict::Inside);
            pos += rows.len() as u64;
        }
        assert!(server.binlog.wants_sync(), "round {round}");
        server.binlog.sync_step().unwrap();
        assert_eq!(syncs(&server), before + 1, "round {round}");
        assert!(!server.binlog.wants_sync());
    }
    assert_eq!(server.binlog.note_and_pin().1, None, "large groups pin nothing");
}

/// A long event says so in front: nothing of its group is copied. Where the log is not synced at a group's
/// end, the limit is another one.
#[test]
fn a_group_is_large_from_the_header_of_a_long_event_on() {
    let copied = |bytes: u64, durable: bool| {
        let mut server = Server::new(9);
        server.binlog.switch(true).unwrap();
        server.rotate().unwrap();
        server.durable = durable;
        let value = |server: &Server, name: &str| {
            server.binlog.status().into_iter().find(|(n, _)| *n == name).unwrap().1
        };
        let before = value(&server, "binlog_copied_bytes");
        let mut group = event(&mut server.rng, 30, bytes as usize);
        group.extend(event(&mut server.rng, 16, 8));
        server.group(group, 1000).unwrap();
        let is_large = value(&server, "binlog_large_groups") == 1;
        (value(&server, "binlog_copied_bytes") - before, is_large)
    };
    assert_eq!(copied(GROUP_COPY_BYTES_MAX, true), (0, true));
    assert_eq!(copied(RELAXED_COPY_BYTES_MAX, false), (0, true));
    for (bytes, durable) in [(GROUP_COPY_BYTES_MAX - 100, true), (GROUP_COPY_BYTES_MAX, false)] {
        let (copied, is_large) = copied(bytes, durable);
        assert!(copied > bytes && !is_large, "{bytes}, {durable}: {copied}");
    }
}

/// Without the pin, the scan after a crash would start after bytes that no sync has covered.
#[test]
fn unsynced_bytes_pin_the_log() {
    let mut server = Server::new(3);
    server.binlog.switch(true).unwrap();
    server.rotate().unwrap();
    assert_eq!(server.binlog.note_and_pin().1, None);
    let before = server.wal.end();
    server.transaction(30).unwrap();
    let pin = server.binlog.note_and_pin().1.unwrap();
    assert!(pin >= before && pin < server.wal.end());
    server.binlog.sync_step().unwrap();
    assert_eq!(server.binlog.note_and_pin().1, None);
}

#[test]
fn state_and_records_survive_encoding_and_no_truncation_is_accepted() {
    use super::record::*;
    let gtid = Gtid { domain: 1, server: 2, sequence: 1 << 40 };
    let seen = vec![Seen::Xid(9), Seen::Gtid(gtid)];
    let mut census = Census::default();
    census.begin_file(3, 256, Some(vec![gtid]));
    census.end_group(300, &seen);
    let info = FileInfo { id: 3, path: "./bin.000001".into(), generation: 1 << 40, end: 300 };
    let state = State {
        identity: 7,
        authority: Authority::Ending,
        sequence: 5,
        next_id: 4,
        begin_lsn: Lsn(9),
        files: vec![info.clone()],
        census: census.clone(),
        is_relaxed: true,
    };
    let bytes = state.encode();
    assert_eq!(State::decode(&bytes).unwrap(), state);
    for cut in 1..bytes.len() {
        assert!(State::decode(&bytes[..cut]).is_err());
    }
    let changes = [
        StateChange::Begin(info.clone(), census.clone()),
        StateChange::File(info, census),
        StateChange::End { settled: true },
        StateChange::True { id: 1, from: 7, end: 1 << 33, seen: Some(seen) },
        StateChange::True { id: 1, from: 7, end: 1 << 33, seen: None },
        StateChange::Identity(1),
        StateChange::Synced(Synced { before: Lsn(1 << 40), id: 3, pos: 1 << 33 }),
    ];
    for change in changes {
        let bytes = encode_change(8, &change);
        assert_eq!(decode_change(&bytes).unwrap(), (8, change));
        for cut in 0..bytes.len() {
            assert!(decode_change(&bytes[..cut]).is_err());
        }
    }
    let mut bytes = bytes_head(4, 100, Some(GroupEnd::Maybe), true);
    bytes.extend(b"abc");
    let found = decode_bytes(&bytes).unwrap();
    assert_eq!((found.id, found.pos, found.bytes), (4, 100, &b"abc"[..]));
    assert_eq!((found.group_end, found.is_relaxed), (Some(GroupEnd::Maybe), true));
}
