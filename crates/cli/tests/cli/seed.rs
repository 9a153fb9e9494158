//! `--seed` of every command: those that draw nothing say so.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::{FLASHWRIGHT, err, flashwright};

const WARNING: &str = "warning: --seed: has no effect, because ";
const TRACE: &str = "ts,key,op,size\n0,a,GET,10\n1,b,GET,10\n2,a,GET,10\n";
const BLOCKS: &str = "time_us,op,offset,bytes\n0,R,0,4096\n1,W,8192,4096\n2,R,0,4096\n";
const JOB: &str = "[j]\nrw=randwrite\nnorandommap\nbs=4k\nfilename=/dev/x\nio_size=300%\n";
const CONFIG: &str = r#"{ "cache_config": { "cacheSizeMB": 8 },
    "test_config": { "numOps": 100, "numKeys": 10, "numThreads": 1, "getRatio": 0.5, "setRatio": 0.5,
        "keySizeRange": [8, 16], "keySizeRangeProbability": [1.0], "valSizeRange": [10, 100], "valSizeRangeProbability": [1.0] } }"#;

/// Command lines that draw nothing, with the name of the command in the warning. They run in this order, in one directory.
const DRAW_NOTHING: [(&str, &str); 35] = [
    ("trace formats", "trace formats"),
    ("trace info", "trace info t.csv"),
    ("trace convert", "trace convert t.csv converted.csv"),
    ("simulate", "simulate t.csv --size 30 --warmup 0 --json rows.json"),
    ("simulate", "simulate t.csv --size 30 --warmup 0 --policy s3fifo,log"),
    ("simulate", "simulate t.csv --size 30 --warmup 0 --policy lru --admission reject-first"),
    ("simulate", "simulate t.csv --size 30 --warmup 0 --policy log --admission probability:0.5"),
    ("compare", "compare rows.json rows.json"),
    ("report", "report rows.json -o page.html"),
    ("bench --validate", "bench --validate"),
    ("study", "study"),
    ("model dlwa", "model dlwa --soc 4% --op 17%"),
    ("model carbon", "model carbon --dlwa 1.5"),
    ("model lifetime", "model lifetime --drive pm9d3 --years 5"),
    ("package-files", "package-files packages"),
    ("ssd cards", "ssd cards"),
    ("ssd info", "ssd info drive"),
    ("ssd trim", "ssd trim drive --yes"),
    ("ssd wear", "ssd wear --log wear.csv"),
    ("block replay", "block replay blocks.csv --preset v3"),
    (
        "block create",
        "block create --flash flash --disk disk --flash-size 8MiB --disk-size 32MiB --associativity 64 --yes",
    ),
    ("block list", "block list --directory ."),
    ("block set", "block set --flash flash --disk disk idle_seconds=7"),
    ("block status", "block status --flash flash"),
    ("block check", "block check --flash flash --disk disk"),
    ("block flush", "block flush --flash flash --disk disk"),
    ("block upgrade", "block upgrade --flash flash --disk disk"),
    ("block grow", "block grow --flash flash --disk disk"),
    ("block replace-flash", "block replace-flash --flash flash --disk disk --to new --to-size 16MiB --yes"),
    ("block serve", "block serve --flash new --disk disk --socket blocks.sock"),
    ("block destroy", "block destroy --flash new --disk disk --yes"),
    ("block ublk list", "block ublk list"),
    ("serve", "serve --flash cache --flash-size 64MiB --dram 16MiB --listen unix:items.sock"),
    // The cells have the seed of the plan.
    ("sweep", "sweep plan.toml --out swept --dry-run"),
    ("sweep", "sweep plan.toml --out swept"),
];

/// Command lines that draw random numbers.
const DRAW: [(&str, &str); 15] = [
    ("bench", "bench config.json"),
    ("evaluate", "evaluate pm9d3 --plan"),
    ("predict", "predict zipf.csv --drive test --rate 1000 --dram 1% --utilization 100%"),
    ("simulate", "simulate t.csv --size 30 --warmup 0 --policy lru,random"),
    ("simulate", "simulate t.csv --size 30 --warmup 0 --policy cacheus"),
    ("simulate", "simulate t.csv --size 30 --warmup 0 --policy clairvoyant-size"),
    ("simulate", "simulate t.csv --size 30 --warmup 0 --policy lru --admission adaptsize"),
    ("trace generate cdn", "trace generate cdn --requests 1000 -o made.csv"),
    ("trace generate zipf", "trace generate zipf --requests 20000 -o zipf.csv"),
    ("trace generate innodb", "trace generate innodb --operations 10 -o innodb.csv"),
    ("block replay", "block replay --generate mysql8 --operations 10 --preset v3"),
    ("ssd run", "ssd run test --job job.fio --csv curve.csv --gc fifo"),
    ("ssd learn", "ssd learn curve.csv --job job.fio --from test --out learned.toml"),
    ("ssd forecast", "ssd forecast curve.csv --card learned.toml --job job.fio --capacities 3"),
    ("ssd precondition", "ssd precondition drive --yes --write-size 4KiB"),
];

/// Accepts `--seed`, and cannot run without a ublk device.
const NOT_RUN: [&str; 1] = ["block ublk delete"];

/// A directory with the files that the command lines read. Direct I/O works there.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let write = |name: &str, text: &[u8]| std::fs::write(directory.path().join(name), text).unwrap();
    write("t.csv", TRACE.as_bytes());
    write("blocks.csv", BLOCKS.as_bytes());
    write("job.fio", JOB.as_bytes());
    write("config.json", CONFIG.as_bytes());
    write("drive", &[7; 1 << 20]);
    write("wear.csv", b"host_bytes,media_bytes\n0,0\n1000000,1500000\n2000000,3000000\n");
    write(
        "plan.toml",
        b"command = \"simulate\"\n[fixed]\ntrace = \"t.csv\"\nwarmup = \"0\"\nsize = \"30\"\n[axes]\npolicy = [\"random\"]\n",
    );
    directory
}

/// The output of the command line with a seed. A server is stopped once it is ready.
fn run(directory: &Path, line: &str) -> Output {
    let mut command = Command::new(FLASHWRIGHT);
    command.args(line.split(' ')).args(["--seed", "3"]).current_dir(directory).stdin(Stdio::null());
    if !line.starts_with("serve") && !line.starts_with("block serve") {
        return command.output().unwrap();
    }
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    assert!(Command::new("kill").arg(server.id().to_string()).status().unwrap().success());
    server.wait_with_output().unwrap()
}

/// The warnings about the seed.
fn warnings(directory: &Path, line: &str) -> Vec<String> {
    let output = run(directory, line);
    let text = err(&output);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{line}: {text}");
    text.lines().filter_map(|line| line.strip_prefix(WARNING)).map(str::to_owned).collect()
}

#[test]
fn seed_of_a_command_that_draws_nothing_is_reported_once() {
    let directory = directory();
    for (command, line) in DRAW_NOTHING {
        if command == "block grow" {
            let disk = std::fs::File::options().write(true).open(directory.path().join("disk")).unwrap();
            disk.set_len(48 << 20).unwrap();
        }
        let reason = match command {
            "sweep" => "each cell has the seed of the plan: set `seed` in its [fixed] or [axes]".to_owned(),
            _ => format!("nothing in this run of `{command}` is random"),
        };
        assert_eq!(warnings(directory.path(), line), [reason], "{line}");
    }
}

#[test]
fn seed_of_a_command_that_draws_is_not_reported() {
    let directory = directory();
    let zipf = DRAW.iter().find(|(command, _)| *command == "trace generate zipf").unwrap();
    for (_, line) in [zipf].into_iter().chain(&DRAW) {
        assert_eq!(warnings(directory.path(), line), [""; 0], "{line}");
    }
}

#[test]
fn tables_have_every_command_that_accepts_a_seed() {
    let packages = tempfile::tempdir().unwrap();
    assert!(flashwright(&["package-files", packages.path().to_str().unwrap()]).status.success());
    let pages = std::fs::read_dir(packages.path().join("man1")).unwrap().map(|page| page.unwrap().path());
    let with_seed = pages.filter(|page| std::fs::read_to_string(page).unwrap().contains("\\-\\-seed"));
    let stems = with_seed.map(|page| page.file_stem().unwrap().to_str().unwrap().to_owned());
    let accepting: BTreeSet<String> =
        stems.map(|stem| stem.strip_prefix("flashwright-").unwrap().to_owned()).collect();
    let tables = DRAW_NOTHING.iter().chain(&DRAW).map(|(command, _)| *command).chain(NOT_RUN);
    let tested: BTreeSet<String> = tables
        .map(|command| command.split(" --").next().unwrap().replace(' ', "-"))
        // Hidden from the manual.
        .filter(|command| command != "package-files")
        .collect();
    assert_eq!(tested, accepting);
}
