//! fio jobs on a small model drive: times, phases, placement and the curve.
use flashwright_bench::jobs::plan::{Plan, Target};
use flashwright_bench::jobs::report;
use flashwright_bench::jobs::run::{Outcome, run};
use flashwright_bench::run::stop::Stop;
use ssd::{Card, Drive, Isolation, Upkeep};
use workload::fio::JobFile;

struct Small {
    drive: Drive,
    target: Target,
    page_bytes: u32,
}

/// 256 units of 64 pages at an over-provisioning of 14 %: 58 MB.
fn small(handles: Option<usize>, scale: u32) -> Small {
    let card = Card::load("test").unwrap();
    let mut shape = card.shape(true);
    shape.isolation = handles.map_or(Isolation::CONVENTIONAL, Isolation::initially_isolated);
    shape.units = 256;
    shape.logical_pages = (shape.data_pages() as f64 / 1.14) as u32;
    let capacity_bytes = u64::from(shape.logical_pages) * u64::from(shape.page_bytes);
    let drive = Drive::new(&card, &shape, Upkeep::default()).unwrap();
    let target = Target { capacity_bytes, handles: handles.unwrap_or(1) as u16, scale };
    Small { drive, target, page_bytes: shape.page_bytes }
}

fn execute(text: &str, mut small: Small) -> (Outcome, Drive, u32) {
    let file = JobFile::parse(text, |_| None).unwrap();
    let plan = Plan::new(&file, small.target, 1).unwrap();
    let interval_bytes = small.target.capacity_bytes / 20;
    let outcome = run(plan, &mut small.drive, (interval_bytes, 1), &Stop::default(), |_| ());
    small.drive.ftl().check().unwrap();
    (outcome, small.drive, small.page_bytes)
}

fn refusal(text: &str, small: &Small) -> String {
    let file = JobFile::parse(text, |_| None).unwrap();
    Plan::new(&file, small.target, 1).err().unwrap().to_string()
}

fn seconds(outcome: &Outcome, job: usize) -> (f64, f64) {
    let (begin, end) = outcome.jobs[job].span_ns.unwrap();
    (begin as f64 / 1e9, end as f64 / 1e9)
}

#[test]
fn rate_iops_spaces_requests_and_runtime_ends_the_job() {
    let text = "[j]\nrw=randread\nrate_iops=1000\ntime_based\nruntime=2\n";
    let (outcome, ..) = execute(text, small(None, 1));
    assert_eq!(outcome.jobs[0].kinds[0].latency.count(), 2000);
    assert!((1.9..2.1).contains(&seconds(&outcome, 0).1));
}

#[test]
fn rate_limits_bytes_and_poisson_arrivals_have_the_same_mean() {
    let text = "[j]\nrw=write\nbs=64k\nrate=1m\nsize=4m\n";
    let (outcome, ..) = execute(text, small(None, 1));
    let (begin, end) = seconds(&outcome, 0);
    // The last of 64 requests is due one gap before four seconds.
    assert!((end - begin - 4.0 * 63.0 / 64.0).abs() < 0.01, "{}", end - begin);
    let text = "[j]\nrw=randread\nioengine=libaio\niodepth=256\nrate_iops=1000\nrate_process=poisson\nnumber_ios=20000\nio_size=1000%\n";
    let (outcome, ..) = execute(text, small(None, 1));
    assert!((seconds(&outcome, 0).1 / 20.0 - 1.0).abs() < 0.03);
}

#[test]
fn thinktime_pauses_after_its_number_of_requests() {
    let text = "[j]\nrw=randread\nthinktime=10ms\nthinktime_blocks=5\nnumber_ios=100\n";
    let (outcome, ..) = execute(text, small(None, 1));
    // The pause after the last request is part of no request.
    let (begin, end) = seconds(&outcome, 0);
    assert!((0.19..0.20).contains(&(end - begin)), "{}", end - begin);
}

#[test]
fn stonewall_job_begins_after_all_jobs_above_it_end() {
    let text = "[a]\nrw=write\nsize=4m\n[b]\nrw=write\nsize=8m\n[c]\nstonewall\nrw=write\nsize=4m\n[d]\nrw=write\nsize=4m\n";
    let (outcome, ..) = execute(text, small(None, 1));
    let [a, b, c, d] = [0, 1, 2, 3].map(|job| seconds(&outcome, job));
    assert_eq!((a.0, b.0), (0.0, 0.0));
    let ended = a.1.max(b.1);
    assert!(c.0 >= ended && c.0 < ended + 0.001 && d.0 == c.0, "{ended} {} {}", c.0, d.0);
    let host: Vec<u64> = outcome.phases.iter().map(|phase| phase.stats.host_bytes >> 20).collect();
    assert_eq!(host, [12, 8]);
}

#[test]
fn wait_for_and_startdelay_delay_a_job_alone() {
    let text = "[a]\nrw=write\nsize=4m\n[b]\nwait_for=a\nrw=write\nsize=4m\n[c]\nstartdelay=3\nrw=write\nsize=4m\n[d]\nrw=write\nsize=4m\n";
    let (outcome, ..) = execute(text, small(None, 1));
    let [a, b, c, d] = [0, 1, 2, 3].map(|job| seconds(&outcome, job));
    assert!(b.0 >= a.1 && c.0 == 3.0 && d.0 == 0.0);
}

#[test]
fn exitall_ends_the_other_jobs_of_the_phase() {
    let text = "[global]\nfilename=/dev/x\n[a]\nrw=write\nsize=1m\nexitall\n[b]\nrw=randread\ntime_based\nruntime=1h\n";
    let (outcome, ..) = execute(text, small(None, 1));
    assert!(seconds(&outcome, 1).1 < 1.0 && !outcome.was_stopped);
}

#[test]
fn deeper_queue_makes_reads_faster_and_synchronous_engine_does_not() {
    let rate = |engine: &str, depth: u32| {
        let text = format!(
            "[fill]\nrw=write\nbs=128k\nfilename=/dev/x\n[j]\nstonewall\nfilename=/dev/x\nrw=randread\nnorandommap\nnumber_ios=20000\nioengine={engine}\niodepth={depth}\n"
        );
        let (outcome, ..) = execute(&text, small(None, 1));
        let (begin, end) = seconds(&outcome, 1);
        20_000.0 / (end - begin)
    };
    let single = rate("libaio", 1);
    assert!(rate("libaio", 4) > 2.0 * single);
    assert_eq!(rate("psync", 4), single);
}

/// fio's default writes a permutation each pass, whose write amplification is about half of the uniform one.
#[test]
fn random_map_has_a_lower_write_amplification_than_uniform_writes() {
    let last = |more: &str| {
        let text = format!("[j]\nrw=randwrite\nbs=4k\nfilename=/dev/x\nio_size=1200%\n{more}");
        let (outcome, ..) = execute(&text, small(None, 1));
        report::last_tenth(&outcome).unwrap()
    };
    let (permutation, uniform) = (last(""), last("norandommap\n"));
    assert!(uniform > 3.5 && permutation < 0.75 * uniform, "{permutation} {uniform}");
}

#[test]
fn placement_identifiers_separate_data_on_a_drive_with_handles() {
    let text = "[global]\nfilename=/dev/x\nfdp=1\nioengine=libaio\n[ring]\nrw=write\nbs=64k\nsize=90%\nio_size=400%\nfdp_pli=0\n[hot]\nrw=randwrite\nnorandommap\noffset=90%\nsize=10%\nio_size=400%\niodepth=16\nfdp_pli=1\n";
    let (with, _, page_bytes) = execute(text, small(Some(4), 1));
    let (without, ..) = execute(text, small(None, 1));
    let [with_dlwa, without_dlwa] = [&with, &without].map(|outcome| outcome.stats.dlwa(page_bytes).unwrap());
    assert!(with_dlwa < 1.15 && without_dlwa > 1.4, "{with_dlwa} {without_dlwa}");
    assert!(with.stats.streams[0].host_pages > 0 && with.stats.streams[1].host_pages > 0);
    assert_eq!(with.stats.streams[2].host_pages, 0);
}

#[test]
fn trims_release_data_so_that_rewriting_costs_nothing() {
    let text = "[global]\nfilename=/dev/x\nbs=64k\n[a]\nrw=write\n[t]\nstonewall\nrw=trim\n[b]\nstonewall\nrw=randwrite\n";
    let (outcome, drive, page_bytes) = execute(text, small(None, 1));
    assert_eq!(outcome.stats.dlwa(page_bytes), Some(1.0));
    assert!(drive.ftl().stats().trimmed_pages > 10_000);
}

#[test]
fn files_occupy_separate_ranges_and_device_jobs_share_the_drive() {
    let own = "[j]\nrw=write\nsize=20m\nnumjobs=2\n";
    let (outcome, drive, page_bytes) = execute(own, small(None, 1));
    let pages = (40 << 20) / u64::from(page_bytes);
    assert_eq!((outcome.stats.host_pages, outcome.jobs[0].clones), (pages, 2));
    // Two files: no page is overwritten.
    let logical = |page: u32| drive.ftl().locate(ssd::LogicalPage(page)).is_some();
    assert!(logical(0) && logical(pages as u32 - 1));
    let shared = "[j]\nrw=write\nsize=20m\nnumjobs=2\nfilename=/dev/x\n";
    let (_, drive, _) = execute(shared, small(None, 1));
    assert!(drive.ftl().locate(ssd::LogicalPage(pages as u32 - 1)).is_none());
}

#[test]
fn jobs_that_do_not_fit_are_refused_with_line_and_key() {
    let drive = small(Some(2), 1);
    for (text, expected) in [
        (
            "[a]\nrw=write\nsize=40m\nnumjobs=2\n",
            "line 1: size: [a]: the files of the jobs up to this one have",
        ),
        ("[a]\nfilename=/dev/x\noffset=60m\n", "line 1: offset: [a]: 62914560 bytes is past the end"),
        (
            "[a]\nfilename=/dev/x\nbs=1m\nsize=4k\n",
            "line 1: size: [a]: 4096 bytes are less than a block of 1048576",
        ),
        (
            "[a]\nfilename=/dev/x\nfdp=1\nfdp_pli=2\n",
            "line 1: fdp_pli: [a]: identifier 2: the drive has 2 handles, 0 to 1",
        ),
    ] {
        let error = refusal(text, &drive);
        assert!(error.starts_with(expected), "{text:?}: {error}");
    }
}

#[test]
fn scale_divides_sizes_in_bytes_and_run_times() {
    let text = "[j]\nrw=write\nsize=64m\nio_size=128m\n[r]\nstonewall\nrw=randread\nsize=64m\ntime_based\nruntime=20\n";
    let (outcome, ..) = execute(text, small(None, 8));
    assert_eq!(outcome.stats.host_bytes, 16 << 20);
    let (begin, end) = seconds(&outcome, 1);
    assert!((2.5..2.51).contains(&(end - begin)), "{}", end - begin);
}

#[test]
fn curve_covers_all_writes_and_its_intervals_add_up() {
    let text = "[j]\nrw=randwrite\nfilename=/dev/x\nnorandommap\nio_size=300%\n";
    let (outcome, _, page_bytes) = execute(text, small(None, 1));
    let last = outcome.intervals.last().unwrap();
    assert_eq!(last.host_bytes, outcome.stats.host_bytes);
    assert_eq!(last.media_bytes, outcome.stats.media_pages() * u64::from(page_bytes));
    assert_eq!(outcome.intervals.iter().map(|it| it.written_bytes).sum::<u64>(), outcome.stats.host_bytes);
    assert!((60..=61).contains(&outcome.intervals.len()));
    assert_eq!(outcome.intervals[0].dlwa(), Some(1.0));
    assert!(last.dlwa().unwrap() > 2.0);
}

#[test]
fn preconditioned_drive_starts_in_the_steady_state_with_counters_at_zero() {
    let mut small = small(None, 1);
    assert!(ssd::run::precondition(&mut small.drive, 4.0, 1, |_, _| true));
    assert_eq!(small.drive.ftl().stats().host_bytes, 0);
    let text = "[j]\nrw=randwrite\nfilename=/dev/x\nnorandommap\nio_size=20%\n";
    let (outcome, _, page_bytes) = execute(text, small);
    assert!(outcome.stats.dlwa(page_bytes).unwrap() > 3.0);
}
