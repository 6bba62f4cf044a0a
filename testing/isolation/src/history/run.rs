//! Records a history: sessions at work on a real server, killed in the middle and started again.

use super::model::{History, Kind, Op, Outcome, State, Txn};
use super::workload::{all_rows, create, Shared, Worker};
use crate::level::{Engine, Level};
use sluice_rig::client::{Client, Reply};
use sluice_rig::rng::Rng;
use sluice_rig::server::{Launch, Server};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

pub struct Plan {
    pub engine: Engine,
    pub level: Level,
    pub kind: Kind,
    pub sessions: usize,
    pub kills: usize,
    /// Of load, over all lives.
    pub time: Duration,
    pub seed: u64,
}

pub fn record(plan: &Plan, launch: &Launch) -> Result<History, String> {
    let shared = Shared::new(plan.kind, plan.level);
    let mut history = History::new(plan.kind);
    let server = launch.start().map_err(|e| e.to_string())?;
    let mut client = Client::connect(&server.socket(), "").map_err(|e| e.to_string())?;
    create(&mut client, plan.engine).map_err(|e| e.to_string())?;
    drop(client);
    let slice = plan.time / (plan.kills as u32 + 1);
    let mut running = Some(server);
    for life in 0..=plan.kills {
        shared.stop.store(false, Ordering::SeqCst);
        shared.killing.store(false, Ordering::SeqCst);
        let server = match running.take() {
            Some(server) => server,
            None => launch.start().map_err(|e| e.to_string())?,
        };
        let slice = Slice { life, time: slice, kill: life < plan.kills };
        let server = match one_life(plan, &shared, server, slice, &mut history)? {
            Some(server) => server,
            None => launch.start().map_err(|e| e.to_string())?,
        };
        let state = state_of(&server.socket(), plan.kind).map_err(|e| e.to_string())?;
        history.txns.push(as_transaction(&state, life));
        history.states.push(state);
        running = Some(server);
    }
    if let Some(server) = running {
        server.stop().map_err(|e| e.to_string())?;
    }
    Ok(history)
}

struct Slice {
    life: usize,
    time: Duration,
    kill: bool,
}

/// Sessions at work for a time; then they stop, or the server is killed under them.
fn one_life(
    plan: &Plan,
    shared: &Shared,
    server: Server,
    slice: Slice,
    history: &mut History,
) -> Result<Option<Server>, String> {
    let socket = server.socket();
    let rng = Rng::new(plan.seed).fork(slice.life as u64 + 1);
    let mut workers = Vec::new();
    for session in 1..=plan.sessions {
        let rng = rng.fork(session as u64);
        let worker = Worker::connect(shared, &socket, rng, slice.life);
        workers.push(worker.map_err(|e| e.to_string())?);
    }
    let server = thread::scope(|scope| {
        for worker in &mut workers {
            scope.spawn(|| worker.work());
        }
        thread::sleep(slice.time);
        let server = match slice.kill {
            false => Ok(Some(server)),
            true => {
                shared.killing.store(true, Ordering::SeqCst);
                server.kill().map(|()| None)
            }
        };
        shared.stop.store(true, Ordering::SeqCst);
        server
    });
    for worker in workers {
        history.txns.extend(worker.txns);
        history.faults.extend(worker.faults);
    }
    server.map_err(|e| e.to_string())
}

fn state_of(socket: &Path, kind: Kind) -> Reply<State> {
    let mut client = Client::connect(socket, "")?;
    Ok(all_rows(&mut client, kind)?.into_iter().collect())
}

/// The state is a read like any other: it must agree with all that came before and comes later.
fn as_transaction(state: &State, life: usize) -> Txn {
    let read = |(key, seen): (&u64, &super::model::Seen)| Op::Read {
        key: *key,
        seen: seen.clone(),
        current: false,
    };
    Txn { life, ops: state.iter().map(read).collect(), outcome: Outcome::Committed }
}
