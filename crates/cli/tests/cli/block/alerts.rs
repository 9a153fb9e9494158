//! The alert rules, tested with Prometheus's promtool if it is installed.

use std::process::Command;

use super::printed;
use crate::flashwright;

/// Test series, and the alerts expected at given times.
const CASES: &str = r#"
rule_files: [rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - { series: 'flashwright_block_healthy{volume="a"}', values: '1 1 0 0 0 0 0 0' }
      - { series: 'flashwright_block_healthy{volume="b"}', values: '1 1 1 1 1 1 1 1' }
      - { series: 'flashwright_block_damaged_blocks{volume="b"}', values: '0 0 3 3 3 3 3 3' }
      - { series: 'flashwright_block_lost_last_entry{volume="b"}', values: '0 0 1 1 1 1 1 1' }
      - { series: 'flashwright_block_info{volume="a"}', values: '1 1 1 1 1 1 1 1' }
      - { series: 'flashwright_block_info{volume="b"}', values: '1 1 1 1 1 1 1 1' }
      - { series: 'flashwright_block_up_seconds{volume="b"}', values: '60 120 180 240 300 360 420 480' }
    alert_rule_test:
      - { eval_time: 1m, alertname: FlashwrightBlockUnhealthy, exp_alerts: [] }
      - { eval_time: 1m, alertname: FlashwrightBlockDamaged, exp_alerts: [] }
      - eval_time: 4m
        alertname: FlashwrightBlockUnhealthy
        exp_alerts:
          - exp_labels: { severity: critical, volume: a }
            exp_annotations:
              summary: "Cache a: a device has errors"
              description: "Flash no longer takes writes, or the disk fails. `flashwright block status` has the first error of each."
      - eval_time: 4m
        alertname: FlashwrightBlockDamaged
        exp_alerts:
          - exp_labels: { severity: critical, volume: b }
            exp_annotations:
              summary: "Cache b: 3 acknowledged blocks are damaged"
              description: "Flash lost a part of an acknowledged flush. `flashwright block check --full` names the blocks of the stopped cache."
      - { eval_time: 1m, alertname: FlashwrightBlockLostLastRecord, exp_alerts: [] }
      - eval_time: 4m
        alertname: FlashwrightBlockLostLastRecord
        exp_alerts:
          - exp_labels: { severity: warning, volume: b }
            exp_annotations:
              summary: "Cache b: opening it dropped a damaged record of writes"
              description: "Correct after a power cut during a flush. If the machine kept its power, flash lost data."
      - eval_time: 6m
        alertname: FlashwrightBlockNotServed
        exp_alerts:
          - exp_labels: { severity: warning, volume: a }
            exp_annotations: { summary: "Cache a is not served" }
      - { eval_time: 6m, alertname: FlashwrightBlockRestarts, exp_alerts: [] }
"#;

#[test]
fn alert_rules_are_valid_and_fire_only_on_failures() {
    let rules = flashwright(&["block", "status", "--alert-rules"]);
    assert!(rules.status.success(), "{}", printed(&rules));
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("rules.yml"), &rules.stdout).unwrap();
    std::fs::write(directory.path().join("cases.yml"), CASES).unwrap();
    for arguments in [["check", "rules", "rules.yml"], ["test", "rules", "cases.yml"]] {
        let checked = Command::new("promtool").args(arguments).current_dir(directory.path()).output();
        let Ok(checked) = checked else {
            println!("SKIPPED: there is no promtool (Debian package prometheus)");
            return;
        };
        assert!(checked.status.success(), "{}", printed(&checked));
    }
}
