use flashwright_bench::run::stop::Stop;
use flashwright_bench::study::experiment::*;
#[test]
#[ignore]
fn probe() {
    let scale: u32 = std::env::var("SCALE").map_or(2048, |s| s.parse().unwrap());
    let runner = Runner { scale, seed: 1, stop: Stop::default() };
    let util: f64 = std::env::var("UTIL").map_or(1.0, |s| s.parse().unwrap());
    let soc: u32 = std::env::var("SOC").map_or(4, |s| s.parse().unwrap());
    for placement in [true, false] {
        let e =
            Experiment { utilisation: util, soc_percent: soc, ..Experiment::usual(Mix::KvCache, placement) };
        let t = std::time::Instant::now();
        let m = e.run(&runner).unwrap();
        println!(
            "fdp {placement} util {util} soc {soc}: dlwa {:.3} alwa {:.2} hit {:.3} tput {:.0} p99r {} p99w {} gc {:.1} socshare {:.3} in {:?}\n{:?}",
            m.dlwa,
            m.alwa,
            m.hit_ratio,
            m.throughput,
            m.read_p99_ns,
            m.write_p99_ns,
            m.gc_events,
            m.soc_write_share,
            t.elapsed(),
            m.curve
        );
    }
}
