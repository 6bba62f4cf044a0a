//! What an NVMe drive says that it was written, and what it wrote to its flash for that.
//!
//! The tools of administrators read its logs: `nvme` (nvme-cli), or `smartctl` (smartmontools). Both
//! need the right to send commands to the drive, so usually root. They are run with fixed arguments
//! and the name of the disk, and only on disks that the kernel's NVMe driver named.

use serde_json::Value;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// "Data Units Written" of log page 02h counts thousands of units of 512 bytes, rounded up (NVM
/// Express Base Specification, SMART / Health Information).
const DATA_UNIT_BYTES: u64 = 512_000;

/// A tool that takes longer has no answer.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct Drive {
    pub name: String,
    tool: Tool,
    /// It has the log of the Open Compute Project.
    has_ocp: bool,
}

#[derive(Clone, Debug)]
enum Tool {
    Nvme(PathBuf),
    Smartctl(PathBuf),
}

/// Since the drive was made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DriveCounters {
    /// By the host: all file systems, partitions and namespaces of the drive.
    pub host_bytes: u64,
    /// To its flash.
    pub media_bytes: Option<u64>,
}

impl DriveCounters {
    pub fn since(&self, before: &DriveCounters) -> DriveCounters {
        DriveCounters {
            host_bytes: self.host_bytes.saturating_sub(before.host_bytes),
            media_bytes: self
                .media_bytes
                .zip(before.media_bytes)
                .map(|(now, then)| now.saturating_sub(then)),
        }
    }

    /// Bytes written to the flash for a byte of the host.
    pub fn amplification(&self) -> Option<f64> {
        let host = Some(self.host_bytes).filter(|bytes| *bytes > 0)?;
        Some(self.media_bytes? as f64 / host as f64)
    }
}

/// Where the tools are.
pub struct Tools {
    pub nvme: PathBuf,
    pub smartctl: PathBuf,
}

impl Default for Tools {
    fn default() -> Tools {
        Tools { nvme: found("nvme"), smartctl: found("smartctl") }
    }
}

/// In PATH, which without root often has no sbin, or there.
fn found(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    let there = Path::new("/usr/sbin").join(name);
    if !in_path && there.is_file() {
        there
    } else {
        PathBuf::from(name)
    }
}

impl Drive {
    /// The drive, and why its flash is not known; or why nothing is.
    pub fn of(disk: &str, tools: &Tools) -> Result<(Drive, Option<String>), String> {
        let named = |why: String| format!("{disk}: {why}");
        if !is_nvme(disk) {
            return Err(named("it is no NVMe drive".to_string()));
        }
        let nvme =
            Drive { name: disk.to_string(), tool: Tool::Nvme(tools.nvme.clone()), has_ocp: false };
        let why_no_nvme = match nvme.host_bytes() {
            Ok(_) => {
                let ocp = nvme.media_bytes();
                let drive = Drive { has_ocp: ocp.is_ok(), ..nvme };
                let why = ocp.err().map(|why| named(format!("no OCP log (page C0h): {why}")));
                return Ok((drive, why));
            }
            Err(why) => why,
        };
        let tool = Tool::Smartctl(tools.smartctl.clone());
        let drive = Drive { name: disk.to_string(), tool, has_ocp: false };
        match drive.host_bytes() {
            Ok(_) => {
                let why = format!("smartctl does not show what goes to its flash; {why_no_nvme}");
                Ok((drive, Some(named(why))))
            }
            Err(why) => Err(named(format!("{why_no_nvme}; {why}"))),
        }
    }

    pub fn counters(&self) -> Option<DriveCounters> {
        let media_bytes = if self.has_ocp { self.media_bytes().ok() } else { None };
        Some(DriveCounters { host_bytes: self.host_bytes().ok()?, media_bytes })
    }

    fn host_bytes(&self) -> Result<u64, String> {
        let device = format!("/dev/{}", self.name);
        match &self.tool {
            Tool::Nvme(tool) => {
                let (code, said) = run(tool, &["smart-log", &device, "-o", "json"])?;
                let log = said.json(code == Some(0))?;
                host_bytes(&log).ok_or_else(|| "nvme: no data_units_written".to_string())
            }
            Tool::Smartctl(tool) => {
                let (code, said) = run(tool, &["-A", "-j", &device])?;
                // Only these bits of its exit code mean that it could not ask the drive.
                let log = said.json(code.is_some_and(|code| code & 3 == 0))?;
                host_bytes(&log["nvme_smart_health_information_log"])
                    .ok_or_else(|| "smartctl: no data_units_written".to_string())
            }
        }
    }

    fn media_bytes(&self) -> Result<u64, String> {
        let Tool::Nvme(tool) = &self.tool else { return Err("only nvme shows it".to_string()) };
        let device = format!("/dev/{}", self.name);
        let (code, said) = run(tool, &["ocp", "smart-add-log", &device, "-o", "json"])?;
        let log = said.json(code == Some(0))?;
        media_bytes(&log).ok_or_else(|| "nvme: no physical media units written".to_string())
    }
}

/// nvme0n1: what else begins so is no disk of this driver.
fn is_nvme(disk: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let parts = disk.strip_prefix("nvme").and_then(|rest| rest.split_once('n'));
    parts.is_some_and(|(controller, namespace)| digits(controller) && digits(namespace))
}

/// Its exit code and output. Both logs fit into a pipe, so it ends without a reader.
fn run(tool: &Path, args: &[&str]) -> Result<(Option<i32>, Said), String> {
    let name = tool.file_name().unwrap_or(tool.as_os_str()).to_string_lossy();
    let failed = |e: std::io::Error| match e.kind() {
        ErrorKind::NotFound => format!("{name} is not installed"),
        _ => format!("{name}: {e}"),
    };
    let mut command = Command::new(tool);
    // C: numbers without separators of thousands.
    command.args(args).env("LC_ALL", "C").stdin(Stdio::null());
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    let give_up = Instant::now() + PATIENCE;
    while child.try_wait().map_err(failed)?.is_none() {
        if Instant::now() > give_up {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("{name}: no answer within {} s", PATIENCE.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().map_err(failed)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said =
        Said { name: name.into_owned(), out: text(&output.stdout), err: text(&output.stderr) };
    Ok((output.status.code(), said))
}

struct Said {
    name: String,
    out: String,
    err: String,
}

impl Said {
    /// The JSON of a tool that asked the drive; or what it complains about.
    fn json(&self, asked: bool) -> Result<Value, String> {
        let json = serde_json::from_str::<Value>(&self.out);
        match json {
            Ok(log) if asked => Ok(log),
            Ok(log) => Err(self.complains(log["smartctl"]["messages"][0]["string"].as_str())),
            Err(_) => Err(self.complains(None)),
        }
    }

    fn complains(&self, message: Option<&str>) -> String {
        let mut lines = self.err.lines().chain(self.out.lines()).map(str::trim);
        let line = message.or_else(|| lines.find(|line| !line.is_empty()));
        format!("{}: {}", self.name, line.unwrap_or("it gives no reason"))
    }
}

/// Of log page 02h. An old nvme prints a fraction, smartctl may print text.
fn host_bytes(log: &Value) -> Option<u64> {
    whole(&log["data_units_written"])?.checked_mul(DATA_UNIT_BYTES)
}

/// Of log page C0h. The name has changed with a version of the output. The unit is the byte, the
/// system's own data are among them (OCP Datacenter NVMe SSD Specification, SMART-1).
fn media_bytes(log: &Value) -> Option<u64> {
    let names = ["Physical media units written", "physical_media_units_written"];
    let value = names.iter().map(|name| &log[*name]).find(|value| !value.is_null())?;
    match value.as_object() {
        Some(halves) => {
            whole(halves.get("lo")?).filter(|_| halves.get("hi").and_then(whole) == Some(0))
        }
        None => whole(value),
    }
}

fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let number = value.as_f64().or_else(|| value.as_str()?.parse().ok())?;
        (0.0..1.8e19).contains(&number).then_some(number as u64)
    })
}

#[cfg(test)]
mod tests;
