use std::sync::mpsc;

use device::{IoBuffer, MemoryDevice};

use super::super::DeviceExport;
use super::*;

fn names(texts: &[&str]) -> Vec<ClientName> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn remote(address: &str) -> Client {
    Client::of_tcp(address.parse().unwrap())
}

const DATABASE: Client = Client::Process { pid: 77, uid: 26 };
const BACKUP: Client = Client::Process { pid: 78, uid: 0 };

#[test]
fn client_name_is_parsed_and_displayed_in_canonical_form() {
    for (text, written) in [
        ("pid:1", "pid:1"),
        ("uid:0", "uid:0"),
        ("127.0.0.1", "127.0.0.1"),
        ("10.1.2.3/8", "10.0.0.0/8"),
        ("10.1.2.3/32", "10.1.2.3"),
        ("1.2.3.4/0", "0.0.0.0/0"),
        ("::1", "::1"),
        ("fe80::1:2/64", "fe80::/64"),
    ] {
        let name: ClientName = text.parse().unwrap();
        assert_eq!(name.to_string(), written);
        assert_eq!(written.parse(), Ok(name));
    }
}

#[test]
fn invalid_client_name_fails_with_the_reason() {
    for (text, why) in [
        ("pid:", "the number of a process"),
        ("pid:0", "the number of a process"),
        ("pid:-1", "the number of a process"),
        ("pid:2147483648", "the number of a process"),
        ("uid:root", "the number of a user"),
        ("uid:4294967295", "the number of a user"),
        ("localhost", "must be pid:NUMBER, uid:NUMBER or an IP address"),
        ("77", "must be pid:NUMBER"),
        ("", "must be pid:NUMBER"),
        ("10.0.0.1/33", "from 0 to 32"),
        ("10.0.0.1/", "from 0 to 32"),
        ("::1/129", "from 0 to 128"),
        ("::ffff:10.0.0.1", "write it as IPv4"),
    ] {
        let receiver = text.parse::<ClientName>().unwrap_err().to_string();
        assert!(receiver.contains(why), "{text}: {receiver}");
    }
}

#[test]
fn rules_cache_all_except_listed_or_only_listed_clients() {
    let all = ClientRules::default();
    assert!(all.caches(&DATABASE) && all.caches(&Client::Unknown));
    let but = ClientRules { uncached: names(&["uid:0"]), ..ClientRules::default() };
    assert!(but.caches(&DATABASE) && !but.caches(&BACKUP) && but.caches(&remote("10.0.0.1")));
    let only =
        ClientRules { cache_all: false, cached: names(&["pid:77", "10.0.0.0/8"]), uncached: Vec::new() };
    assert!(only.caches(&DATABASE) && !only.caches(&BACKUP) && !only.caches(&Client::Unknown));
    assert!(only.caches(&remote("10.9.9.9")) && !only.caches(&remote("11.0.0.1")));
}

#[test]
fn client_on_both_lists_is_the_exception() {
    let user_but_process =
        ClientRules { uncached: names(&["uid:0"]), cached: names(&["pid:78"]), ..ClientRules::default() };
    assert!(user_but_process.caches(&BACKUP));
    assert!(!user_but_process.caches(&Client::Process { pid: 79, uid: 0 }));
    let network_but_one =
        ClientRules { cache_all: false, cached: names(&["10.0.0.0/8"]), uncached: names(&["10.0.0.7"]) };
    assert!(network_but_one.caches(&remote("10.0.0.6")) && !network_but_one.caches(&remote("10.0.0.7")));
}

#[test]
fn mapped_ipv4_client_matches_ipv4_networks_only() {
    let is = |name: &str, address: &str| name.parse::<ClientName>().unwrap().matches(&remote(address));
    assert!(is("127.0.0.0/8", "127.5.5.5") && !is("127.0.0.0/8", "128.0.0.1"));
    assert!(is("127.0.0.1", "::ffff:127.0.0.1"), "a listener at [::]");
    assert!(is("0.0.0.0/0", "1.2.3.4") && !is("0.0.0.0/0", "::1"));
    assert!(is("::/0", "fe80::1") && !is("::/0", "1.2.3.4"));
    assert!(is("fe80::/10", "febf::1") && !is("fe80::/10", "fec0::1"));
}

/// FUSE reports the thread, whose ID usually differs from the process ID.
#[test]
fn process_name_matches_all_its_threads() {
    let thread = std::fs::read_link("/proc/thread-self").unwrap();
    let tid = thread.file_name().unwrap().to_str().unwrap().parse().unwrap();
    let (uid, here) = (rustix::process::getuid().as_raw(), std::process::id());
    assert_ne!(tid, here, "tests run on separate threads");
    let thread = Client::Thread { tid, uid };
    assert!(ClientName::Pid(here).matches(&thread) && ClientName::Pid(tid).matches(&thread));
    assert!(!ClientName::Pid(1).matches(&thread) || here == 1);
    assert!(ClientName::Uid(uid).matches(&thread) && !ClientName::Uid(uid + 1).matches(&thread));
    assert!(
        !ClientName::Pid(here).matches(&Client::Thread { tid: 0, uid }),
        "a thread of another PID namespace"
    );
}

/// An export that reports the name of each operation.
struct ReportingExport(mpsc::Sender<&'static str>, DeviceExport);

impl Export for ReportingExport {
    fn shape(&self) -> Shape {
        self.1.shape()
    }

    fn submit(&self, operation: Operation, reply: Reply) {
        let name = match operation {
            Operation::Read { .. } => "read",
            Operation::Write { .. } => "write",
            Operation::Zero { .. } => "zero",
            Operation::Trim { .. } => "trim",
            Operation::Prefetch { .. } => "prefetch",
            Operation::Flush => "flush",
        };
        self.0.send(name).unwrap();
        self.1.submit(operation, reply);
    }

    fn extents(&self, context: Context, offset: u64, len: u64, most: usize) -> Result<Vec<Extent>, IoError> {
        self.1.extents(context, offset, len, most)
    }
}

#[test]
fn changed_rules_apply_to_later_requests_that_may_fill_the_cache() {
    let (device, admission) = (Arc::new(MemoryDevice::new(1 << 20)), Arc::new(Admission::default()));
    let reporting_export = || {
        let (sender, receiver) = mpsc::channel();
        (Arc::new(ReportingExport(sender, DeviceExport::new(Arc::clone(&device) as _))), receiver)
    };
    let ((cached, of_cached), (uncached, of_uncached)) = (reporting_export(), reporting_export());
    let export = ClientExport::new(cached, uncached, Arc::clone(&admission));
    let ask_all = || {
        let data = IoBuffer::zeroed(512).into();
        for operation in [
            Operation::Read { offset: 0, len: 512 },
            Operation::Write { offset: 0, data, durable: false },
            Operation::Zero { offset: 0, len: 512, may_trim: true, only_if_fast: false, durable: false },
            Operation::Prefetch { offset: 0, len: 512 },
            Operation::Trim { offset: 0, len: 512, durable: false },
            Operation::Flush,
        ] {
            export.submit_for(&BACKUP, operation, Reply::new(|result| drop(result.unwrap())));
        }
        [&of_cached, &of_uncached].map(|receiver| receiver.try_iter().collect::<Vec<_>>())
    };
    let all = ["read", "write", "zero", "prefetch", "trim", "flush"];
    assert_eq!(ask_all(), [&all[..], &[]]);
    admission.set_rules(ClientRules { uncached: names(&["uid:0"]), ..ClientRules::default() });
    assert_eq!(ask_all(), [&all[4..], &all[..4]]);
    assert_eq!(admission.uncached_requests(), 4);
    admission.set_rules(ClientRules { cache_all: false, ..ClientRules::default() });
    export.submit(Operation::Read { offset: 0, len: 512 }, Reply::new(drop));
    assert_eq!(of_uncached.try_iter().count(), 1, "an unknown client is on no list");
    admission.set_rules(ClientRules::default());
    assert_eq!(ask_all(), [&all[..], &[]]);
    assert_eq!(admission.uncached_requests(), 5);
    admission.zero();
    assert_eq!(admission.uncached_requests(), 0);
}
