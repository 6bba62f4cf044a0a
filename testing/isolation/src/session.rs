//! A session of a case: a connection in a thread of its own, so that its statement can wait.

use crate::level::{Engine, Level};
use sluice_rig::client::{Answer, Client, Fault, Reply};
use std::path::Path;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub struct Session {
    orders: Option<Sender<String>>,
    answers: Receiver<Reply<Answer>>,
    thread: Option<JoinHandle<()>>,
    pub id: u32,
    /// The kernel's number of the server's thread.
    pub thread_id: u32,
}

impl Session {
    pub fn open(
        socket: &Path,
        database: &str,
        level: Level,
        engine: Engine,
    ) -> Result<Session, Fault> {
        let mut client = Client::connect(socket, database)?;
        client.run(&format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}"))?;
        client.run(&format!("SET default_storage_engine={engine}"))?;
        let id = client.id();
        let mine = format!("SELECT TID FROM information_schema.processlist WHERE ID={id}");
        let thread_id = *client.rows::<u32>(&mine)?.first().unwrap_or(&0);
        let (orders, inbox) = channel::<String>();
        let (outbox, answers) = channel();
        let thread = thread::spawn(move || {
            while let Ok(sql) = inbox.recv() {
                if outbox.send(client.answer(&sql)).is_err() {
                    break;
                }
            }
        });
        Ok(Session { orders: Some(orders), answers, thread: Some(thread), id, thread_id })
    }

    pub fn begin(&self, sql: &str) {
        if let Some(orders) = &self.orders {
            let _ = orders.send(sql.to_string());
        }
    }

    /// The answer, if it comes within `limit`.
    pub fn answer_within(&self, limit: Duration) -> Option<Reply<Answer>> {
        match self.answers.recv_timeout(limit) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(Fault::Lost("thread gone".into()))),
        }
    }

    /// Ends the connection; its statement must have ended.
    pub fn close(mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
