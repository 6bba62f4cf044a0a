use super::*;
use std::fs;

/// The fields that `json_smart_log` of nvme-cli 2.3 prints (nvme-print-json.c); their values are those
/// of the drive in issue 48 of nvme-cli.
const SMART_LOG: &str = r#"{
  "critical_warning" : 0,
  "temperature" : 307,
  "avail_spare" : 100,
  "percent_used" : 0,
  "data_units_read" : 203913228,
  "data_units_written" : 64663716,
  "host_read_commands" : 7207810975,
  "host_write_commands" : 2931291530
}"#;

/// Log page C0h as nvme-cli 2.3 prints it (plugins/ocp/ocp-nvme.c): the values are those of the plan
/// of monitoring in kdevops ("NVMe OCP Monitoring Integration Plan").
const OCP_LOG: &str = r#"{
  "Physical media units written" : { "hi" : 0, "lo" : 527805403860992 },
  "Physical media units read" : { "hi" : 0, "lo" : 467772386381824 },
  "Bad user nand blocks - Raw" : 0
}"#;

/// `smartctl -A -j /dev/nvme0` of smartmontools 7.5, recorded in issue 18180 of telegraf.
const SMARTCTL: &str = r#"{
  "json_format_version": [1, 0],
  "smartctl": {"version": [7, 5], "argv": ["smartctl", "-A", "-j", "/dev/nvme0"], "exit_status": 0},
  "device": {"name": "/dev/nvme0", "info_name": "/dev/nvme0", "type": "nvme", "protocol": "NVMe"},
  "nvme_smart_health_information_log": {
    "nsid": -1, "critical_warning": 0, "temperature": 45, "percentage_used": 1,
    "data_units_read": 29358994, "data_units_written": 34125838,
    "host_reads": 94496638, "host_writes": 998903304
  }
}"#;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn recorded_logs() {
    assert_eq!(host_bytes(&json(SMART_LOG)), Some(64_663_716 * 512_000));
    assert_eq!(media_bytes(&json(OCP_LOG)), Some(527_805_403_860_992));
    let log = json(SMARTCTL);
    let log = &log["nvme_smart_health_information_log"];
    assert_eq!(host_bytes(log), Some(34_125_838 * 512_000));
}

#[test]
fn numbers_of_other_versions() {
    // Before nvme-cli 2 a floating point number; the second version of the OCP output renamed.
    assert_eq!(host_bytes(&json(r#"{"data_units_written": 12.0}"#)), Some(12 * 512_000));
    assert_eq!(host_bytes(&json(r#"{"data_units_written": "12"}"#)), Some(12 * 512_000));
    let renamed = r#"{"physical_media_units_written": {"hi": 0, "lo": 5}}"#;
    assert_eq!(media_bytes(&json(renamed)), Some(5));
    // 2^64 bytes and more: not a number that is off by as much.
    assert_eq!(media_bytes(&json(&renamed.replace("\"hi\": 0", "\"hi\": 1"))), None);
    for odd in ["{}", r#"{"data_units_written": -1}"#, r#"{"data_units_written": "many"}"#] {
        assert_eq!(host_bytes(&json(odd)), None, "{odd}");
    }
    assert_eq!(media_bytes(&json("[]")), None);
}

#[test]
fn disks_of_the_nvme_driver() {
    assert!(is_nvme("nvme0n1") && is_nvme("nvme12n3"));
    for other in ["vda", "nvme0", "nvme0n1p2", "nvme0n", "nvmen1", "nvme-x", "nvme0n1/../sda"] {
        assert!(!is_nvme(other), "{other}");
    }
}

#[test]
fn the_amplification_inside_of_a_drive() {
    let then = DriveCounters { host_bytes: 1000, media_bytes: Some(3000) };
    let now = DriveCounters { host_bytes: 3000, media_bytes: Some(6000) };
    assert_eq!(now.since(&then).amplification(), Some(1.5));
    assert_eq!(now.amplification(), Some(2.0));
    assert_eq!(now.since(&now).amplification(), None, "nothing was written");
    let unknown = DriveCounters { media_bytes: None, ..now };
    assert_eq!(unknown.since(&then).amplification(), None);
}

/// Stand-ins for the tools, which print what they were told.
struct StandIns(PathBuf);

impl StandIns {
    fn new(name: &str) -> StandIns {
        let dir = std::env::temp_dir().join(format!("sluice-drive-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        StandIns(dir)
    }

    /// A child writes it: a program that is open for writing here, or in a child that another test
    /// starts meanwhile, cannot be run.
    fn script(&self, name: &str, body: &str) {
        let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$2\" && chmod 755 \"$2\"";
        let path = self.0.join(name);
        let written = Command::new("sh").args(["-c", write, "sh", body]).arg(path).status();
        assert!(written.unwrap().success());
    }

    fn look(&self) -> Result<(Drive, Option<String>), String> {
        let tools = Tools { nvme: self.0.join("nvme"), smartctl: self.0.join("smartctl") };
        Drive::of("nvme0n1", &tools)
    }
}

impl Drop for StandIns {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_drive_with_the_ocp_log() {
    let tools = StandIns::new("ocp");
    tools.script(
        "nvme",
        &format!(
            "case \"$*\" in\n'smart-log /dev/nvme0n1 -o json') echo '{SMART_LOG}';;\n\
             'ocp smart-add-log /dev/nvme0n1 -o json') echo '{OCP_LOG}';;\n*) exit 1;;\nesac"
        ),
    );
    let (drive, why) = tools.look().unwrap();
    assert_eq!(why, None);
    let counters = drive.counters().unwrap();
    assert_eq!(counters.host_bytes, 64_663_716 * 512_000);
    assert_eq!(counters.media_bytes, Some(527_805_403_860_992));
    tools.script("nvme", "exit 1");
    assert_eq!(drive.counters(), None, "the drive is gone");
}

#[test]
fn a_drive_without_the_ocp_log_says_so() {
    let tools = StandIns::new("plain");
    // The complaint of tests/e2e/plugins/ocp/ocp_smart_add_log_test.py of nvme-cli.
    let complaint = "ERROR : OCP : Failure reading the C0 Log Page";
    tools.script(
        "nvme",
        &format!(
            "[ \"$1\" = smart-log ] && echo '{SMART_LOG}' && exit; echo '{complaint}' >&2; exit 1"
        ),
    );
    let (drive, why) = tools.look().unwrap();
    assert_eq!(why.unwrap(), format!("nvme0n1: no OCP log (page C0h): nvme: {complaint}"));
    assert_eq!(drive.counters().unwrap().media_bytes, None);
}

#[test]
fn smartctl_will_do() {
    let tools = StandIns::new("smartctl");
    // Bit 6 of its exit code: the log of errors has entries.
    tools.script("smartctl", &format!("echo '{SMARTCTL}'; exit 64"));
    let (drive, why) = tools.look().unwrap();
    assert_eq!(
        why.unwrap(),
        "nvme0n1: smartctl does not show what goes to its flash; nvme is not installed"
    );
    assert_eq!(drive.counters().unwrap().host_bytes, 34_125_838 * 512_000);
}

#[test]
fn one_line_says_why_nothing_is_known() {
    let tools = StandIns::new("none");
    let why = tools.look().unwrap_err();
    assert_eq!(why, "nvme0n1: nvme is not installed; smartctl is not installed");
    tools.script("nvme", "echo >&2; echo '/dev/nvme0n1: Permission denied' >&2; exit 1");
    let messages = r#"{"smartctl": {"messages": [{"string": "Smartctl open device: /dev/nvme0n1 failed: Permission denied", "severity": "error"}], "exit_status": 2}}"#;
    tools.script("smartctl", &format!("echo '{messages}'; exit 2"));
    let why = tools.look().unwrap_err();
    assert_eq!(
        why,
        "nvme0n1: nvme: /dev/nvme0n1: Permission denied; \
         smartctl: Smartctl open device: /dev/nvme0n1 failed: Permission denied"
    );
    let why = Drive::of("vda", &Tools::default()).unwrap_err();
    assert_eq!(why, "vda: it is no NVMe drive");
}
