//! The costs of a plan's steps in Sluice, in the unit of the optimizer of MariaDB 11.8: processor times of the same
//! statements in both engines, all rows in memory.
//!
//! The unit is a millisecond of the machine on which MariaDB measured InnoDB. So each statement's time in InnoDB gives
//! it: it is what InnoDB's costs and those of the server say. Sluice's time in this unit, without the server's part, is
//! what the step costs. Sluice tells the server InnoDB's values (docs/decisions/0050-optimizer-costs.md).

use crate::compare::{Engine, ENGINES};
use crate::use_new;
use sluice_rig::client::{Client, Reply};
use sluice_rig::server::Server;

const ROWS: u32 = 1_000_000;
/// A statement runs so often in each engine, in turn.
const ROUNDS: usize = 9;
/// Takes the numbers below it to different ones, of at most 1,000,002, in an order of no pattern.
const SCATTERED: &str = "(seq * 7919) % 1000003";

/// The server adds these to each row, whatever the engine: sql/optimizer_defaults.h of 11.8.
const WHERE_COST: f64 = 0.000032;
const ROW_COPY_COST: f64 = 0.000060866;
const KEY_COPY_COST: f64 = 0.000015685;

/// A statement whose time is that of one kind of step, so often as it has rows.
struct Step {
    /// A member of OPTIMIZER_COSTS.
    cost: &'static str,
    /// InnoDB's value: storage/innobase/handler/ha_innodb.cc of 11.8.
    innodb: f64,
    server: f64,
    sql: &'static str,
    /// Whether rows of another table lead to those of `t`: the time of these does not count.
    is_join: bool,
}

const STEPS: [Step; 4] = [
    Step {
        cost: "row_next_find_cost",
        innodb: 0.00007013,
        server: ROW_COPY_COST + WHERE_COST,
        sql: "select count(*) from t ignore index (u, k) where plain + id < 0",
        is_join: false,
    },
    Step {
        cost: "row_lookup_cost",
        innodb: 0.00076597,
        server: ROW_COPY_COST + WHERE_COST,
        sql: "select count(t.plain) from WANTED straight_join t on t.id = wanted.n where t.plain >= 0",
        is_join: true,
    },
    Step {
        cost: "key_next_find_cost",
        innodb: 0.00009900,
        server: KEY_COPY_COST + WHERE_COST,
        sql: "select count(*) from t force index (k) where k + 1 < 0",
        is_join: false,
    },
    Step {
        cost: "key_lookup_cost",
        innodb: 0.00079112,
        server: KEY_COPY_COST + WHERE_COST,
        sql: "select count(t.u) from WANTED straight_join t on t.u = wanted.n where t.u >= 0",
        is_join: true,
    },
];

/// Prints a line for each cost.
pub fn measure(server: &Server) -> Reply<()> {
    // Without it sessions have no processor time.
    Client::connect(&server.socket(), "")?.run("set global userstat=ON")?;
    let mut clients = Vec::new();
    for engine in ENGINES {
        clients.push(prepare(server, engine)?);
    }
    println!(
        "{:<20} {:>12} {:>12} {:>12} {:>12}",
        "cost", "InnoDB, ms", "Sluice, ms", "InnoDB", "Sluice"
    );
    for step in &STEPS {
        let [innodb_ms, sluice_ms] = step.times_ms(&mut clients)?;
        let sluice = (step.innodb + step.server) * sluice_ms / innodb_ms - step.server;
        let (cost, innodb) = (step.cost, step.innodb);
        println!("{cost:<20} {innodb_ms:>12.1} {sluice_ms:>12.1} {innodb:>12.8} {sluice:>12.8}");
    }
    Ok(())
}

impl Step {
    /// The median time in each engine, without that of what leads to the rows.
    fn times_ms(&self, clients: &mut [Client]) -> Reply<[f64; 2]> {
        let wanted = format!("(select {SCATTERED} as n from seq_1_to_{}) as wanted", ROWS / 2);
        let sql = self.sql.replace("WANTED", &wanted);
        let lead = format!("select count(n) from {wanted} where n >= 0");
        let mut times: [Vec<f64>; 2] = Default::default();
        for round in 0..=ROUNDS {
            for (client, times) in clients.iter_mut().zip(&mut times) {
                let lead_ms = if self.is_join { time_ms(client, &lead)? } else { 0.0 };
                let took_ms = time_ms(client, &sql)? - lead_ms;
                // The first brings the rows into memory.
                if round > 0 {
                    times.push(took_ms);
                }
            }
        }
        Ok(times.map(median))
    }
}

/// Processor time of the server for the statement.
fn time_ms(client: &mut Client, sql: &str) -> Reply<f64> {
    let before_s = processor_s(client)?;
    client.rows::<u64>(sql)?;
    Ok((processor_s(client)? - before_s) * 1000.0)
}

/// Of this session so far. Statements about the status count too: they are short.
fn processor_s(client: &mut Client) -> Reply<f64> {
    let found: Vec<(String, f64)> = client.rows("show session status like 'Cpu_time'")?;
    Ok(found.first().map_or(0.0, |(_, seconds)| *seconds))
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// One table, small enough for the pool of each engine.
fn prepare(server: &Server, engine: Engine) -> Reply<Client> {
    let mut client = Client::connect(&server.socket(), "")?;
    use_new(&mut client, &format!("costs_{}", engine.name()), engine)?;
    client.run(
        "create table t (id int primary key, u int not null, k int not null, plain int not null, \
         filler char(60) not null, unique key u (u), key k (k))",
    )?;
    client.run(&format!(
        "insert into t select seq, {SCATTERED}, seq * 7 % 1000, seq % 10, 'row' from seq_1_to_{ROWS}"
    ))?;
    client.rows::<mysql::Row>("analyze table t")?;
    Ok(client)
}
