//! Rules for the clients whose blocks are cached, applied to real clients.

use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use device::timer::SystemTimer;
use device::{Device, MemoryDevice};
use flashwright_block::export::{
    Admission, ByteExport, Client as Peer, ClientExport, ClientRules, Export, VolumeExport,
};
use flashwright_block::nbd::{Address, Offered, Options, Server};
use flashwright_block::sets::{Mode, Tuning};
use flashwright_block::volume::{Volume, VolumeConfig};

use crate::client::*;

/// A volume in memory, with its export for cached clients and that for uncached ones.
pub fn both_ways() -> (Volume, [Arc<dyn Export>; 2]) {
    let [flash, disk] =
        [16 << 20, 8 << 20].map(|bytes| Arc::new(MemoryDevice::new(bytes)) as Arc<dyn Device>);
    let volume = pollster::block_on(async {
        let config = VolumeConfig { ways: 64, ..VolumeConfig::default() };
        Volume::create(&flash, &disk, &config, 1).await.unwrap();
        Volume::open(flash, disk, Arc::new(SystemTimer::default())).await.unwrap().0
    });
    let usual = ByteExport::new(Arc::new(VolumeExport::new(volume.clone()).unwrap()));
    let uncached = usual.beside(Arc::new(VolumeExport::new(volume.without_caching()).unwrap()));
    (volume, [Arc::new(usual), Arc::new(uncached)])
}

fn by_rules() -> (Volume, Arc<Admission>, Arc<dyn Export>) {
    let (volume, [usual, uncached]) = both_ways();
    let admission = Arc::new(Admission::default());
    let export = Arc::new(ClientExport::new(usual, uncached, Arc::clone(&admission)));
    (volume, admission, export)
}

fn uncached(names: &[String]) -> ClientRules {
    let uncached = names.iter().map(|name| name.parse().unwrap()).collect();
    ClientRules { uncached, ..ClientRules::default() }
}

#[test]
fn unix_client_is_identified_by_process_and_user_and_follows_changed_rules() {
    let (volume, admission, export) = by_rules();
    let served = Served::new(export, Options::default());
    let mut client = Client::connect(&served.socket(), true, &[]);
    let (pid, uid) = (std::process::id(), std::fs::metadata("/proc/self").unwrap().uid());
    assert_eq!(served.server.clients(), [Peer::Process { pid, uid }]);
    let mut offset = 0;
    let mut comes_in = |rules: ClientRules| {
        admission.set_rules(rules);
        let before = volume.stats().held_blocks;
        offset += 65_536;
        assert_eq!(client.call(WRITE, 0, offset, 4096, &[1; 4096]).error, 0);
        assert_eq!(client.call(READ, 0, offset, 4096, &[]).data, [1; 4096]);
        volume.stats().held_blocks > before
    };
    assert!(comes_in(ClientRules::default()));
    assert!(!comes_in(uncached(&[format!("pid:{pid}")])));
    assert!(comes_in(uncached(&[
        format!("pid:{}", pid + 1),
        format!("uid:{}", uid + 1),
        "0.0.0.0/0".into()
    ])));
    assert!(!comes_in(uncached(&[format!("uid:{uid}")])));
    assert!(!comes_in(ClientRules { cache_all: false, ..ClientRules::default() }));
    let cached = vec![format!("uid:{uid}").parse().unwrap()];
    assert!(comes_in(ClientRules { cache_all: false, cached, ..ClientRules::default() }));
    assert_eq!(admission.uncached_requests(), 6);
}

/// Dirty blocks are only on flash.
#[test]
fn uncached_client_reads_and_writes_cached_blocks_of_others() {
    let (volume, admission, export) = by_rules();
    let served = Served::new(export, Options::default());
    let mut client = Client::connect(&served.socket(), true, &[]);
    assert_eq!(client.call(WRITE, 0, 8192, 4096, &[1; 4096]).error, 0);
    admission.set_rules(uncached(&[format!("pid:{}", std::process::id())]));
    assert_eq!(client.call(READ, 0, 8192, 4096, &[]).data, [1; 4096]);
    assert_eq!(volume.stats().counters.read_hits, 1);
    assert_eq!(client.call(WRITE, 0, 8193, 1, &[2]).error, 0);
    assert_eq!(client.call(FLUSH, 0, 0, 0, &[]).error, 0);
    assert_eq!(client.call(READ, 0, 8192, 3, &[]).data, [1, 2, 1]);
    assert_eq!(volume.stats().dirty_blocks, 1);
}

/// Data read for an uncached client's prefetch would be discarded.
#[test]
fn prefetch_of_an_uncached_client_does_not_read_the_disk() {
    let (volume, admission, export) = by_rules();
    let served = Served::new(export, Options::default());
    let mut client = Client::connect(&served.socket(), true, &[]);
    let mut disk_reads = || {
        assert_eq!(client.call(CACHE, 0, 0, 1 << 20, &[]).error, 0);
        volume.stats().counters.disk_reads
    };
    admission.set_rules(uncached(&[format!("pid:{}", std::process::id())]));
    assert_eq!(disk_reads(), 0);
    admission.set_rules(ClientRules::default());
    let tuning = Tuning { mode: Mode::WriteOnly, ..VolumeConfig::default().tuning };
    pollster::block_on(volume.set_tuning(tuning)).unwrap();
    assert_eq!(disk_reads(), 0);
    pollster::block_on(volume.set_tuning(VolumeConfig::default().tuning)).unwrap();
    assert!(disk_reads() > 0);
}

#[test]
fn tcp_client_is_identified_by_its_address() {
    let (volume, admission, export) = by_rules();
    let address = Address::Tcp("127.0.0.1:0".parse().unwrap());
    let offered = vec![Offered { name: "disk".into(), description: String::new(), export }];
    let server = Server::start(&address, offered, Options::default()).unwrap();
    let Address::Tcp(address) = *server.address() else { panic!("it was requested for TCP") };
    let mut client = Client::over(TcpStream::connect(address).unwrap(), "", true, &[]);
    assert_eq!(server.clients(), [Peer::Remote("127.0.0.1".parse().unwrap())]);
    admission.set_rules(uncached(&["127.0.0.0/8".into()]));
    assert_eq!(client.call(READ, 0, 0, 4096, &[]).error, 0);
    assert_eq!((volume.stats().held_blocks, admission.uncached_requests()), (0, 1));
    admission.set_rules(uncached(&["127.0.0.2".into(), format!("pid:{}", std::process::id())]));
    assert_eq!(client.call(READ, 0, 0, 4096, &[]).error, 0);
    assert_eq!((volume.stats().held_blocks, admission.uncached_requests()), (1, 1));
}
