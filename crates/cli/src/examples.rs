//! Example command lines at the end of `--help`. A test parses each of them. Those of `simulate` follow its policies.

pub(crate) const BENCH: &str = "\
Examples:
  # the shipped example, on a temporary file
  flashwright bench
  # a CacheBench config, its result and a picture
  flashwright bench CONFIG.json --json result.json --plot run.svg
  # check everything, write nothing
  flashwright bench CONFIG.json --device /dev/nvme0n1 --validate
  # with another value of a key
  flashwright bench CONFIG.json --set cache_config.cacheSizeMB=64
  # on a model drive, in virtual time
  flashwright bench CONFIG.json --device sim:pm9d3 --scale 1/1024";

pub(crate) const COMPARE: &str = "\
Examples:
  # what differs, and whether it is more than noise
  flashwright compare base.json new.json";

pub(crate) const SWEEP: &str = "\
Examples:
  # the cells of a plan, then their results in DIRECTORY/results.jsonl
  flashwright sweep plan.toml --out DIRECTORY --dry-run
  flashwright sweep plan.toml --out DIRECTORY
  # one cell, as a task of a cluster
  flashwright sweep plan.toml --out DIRECTORY --cell 17
A plan:
  command = \"simulate\"
  [fixed]
  warmup = \"10%\"
  [axes]
  trace = [\"a.csv\", \"b.csv\"]
  policy = [\"lru\", \"s3fifo\"]
  size = [\"1%\", \"10%\"]";

pub(crate) const REPORT: &str = "\
Examples:
  # two runs on one page
  flashwright report base.json new.json -o page.html";

pub(crate) const EVALUATE: &str = "\
Examples:
  # the model of a drive: nothing is needed
  flashwright evaluate pm9d3
  # what would be done, and for how long
  flashwright evaluate /dev/nvme0n1 --plan
  # a drive; erases it
  flashwright evaluate /dev/nvme0n1 --yes --plot drive.svg";

pub(crate) const SIMULATE: &str = "\
Examples:
  flashwright simulate trace.csv.zst --policy lru,s3fifo,sieve --size 1%,10%,2GiB
  flashwright simulate trace.csv.zst --policy lru,clairvoyant --size 1%,2%,5%,10% --plot pictures
  # of a long trace, with an interval
  flashwright simulate trace.csv.zst --policy slru4 --size 4GiB --sample 1%";

pub(crate) const PREDICT: &str = "\
Examples:
  flashwright predict trace.csv.zst --drive pm9d3 --rate 200000
  flashwright predict trace.csv.zst --drive qlc --dram 8GiB,32GiB --utilization 50%,100% --plot pictures";

pub(crate) const STUDY: &str = "\
Examples:
  # list them
  flashwright study
  # one of them, the paper's values beside ours
  flashwright study fdp-fig6
  # several, which share their runs
  flashwright study cdn-fig8 cdn-fig9 --json result.json
  # on a trace of your own
  flashwright study cdn-fig2 --trace photos.csv.zst";

pub(crate) const SSD: &str = "\
Examples:
  # identity, wear, placement handles
  flashwright ssd info /dev/ng0n1
  # fill it until its write rate is steady
  flashwright ssd precondition /dev/nvme0n1
  # watch it
  flashwright ssd wear /dev/ng0n1 --every 10s --csv wear.csv
  # a model drive alone
  flashwright ssd run pm9d3 --scale 1/1024 --pattern mixed --placement on";

pub(crate) const TRACE: &str = "\
Examples:
  # what a trace contains
  flashwright trace info trace.csv.zst
  # faster to read again
  flashwright trace convert trace.csv.zst trace.fwt
  flashwright trace generate cdn --requests 1000000 -o photos.csv.zst";

pub(crate) const BLOCK: &str = "\
Examples, with two files to try it; devices are named in the same way:
  flashwright block create --flash flash.img --flash-size 1GiB --disk disk.img --disk-size 8GiB --yes
  flashwright block serve --flash flash.img --disk disk.img --socket /tmp/cached.sock
  flashwright block status --socket /tmp/cached.sock --watch
  # without a disk, in virtual time
  flashwright block replay --generate mysql8 --preset v3";

pub(crate) const SERVE: &str = "\
Examples:
  # on 127.0.0.1:11211; the file keeps its items from a clean stop to the next start
  flashwright serve --flash /mnt/ssd/cache --flash-size 10GiB --dram 1GiB
  # a whole drive, on a Unix socket
  flashwright serve --flash /dev/nvme0n1 --dram 8GiB --listen unix:/run/flashwright.sock
  # settings from a file
  flashwright serve /etc/flashwright/serve.d/main.toml";

pub(crate) const PACKAGE_FILES: &str = "\
Examples:
  flashwright package-files target/package";

pub(crate) const MODEL: &str = "\
Examples:
  flashwright model dlwa --soc 4% --op 17%
  flashwright model carbon --dlwa 1.03
  flashwright model lifetime --drive pm9d3 --host-mb-per-second 100 --dlwa 1.03";
