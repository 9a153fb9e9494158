//! Places the jobs of a file on the drive and in time: extents, clones, and the jobs that must end first.

use std::collections::HashMap;

use workload::fio::requests::{Extent, Requests};
use workload::fio::{Amount, Job, JobError, JobFile};

/// The drive as a job file sees it.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its capacity.
    pub capacity_bytes: u64,
    /// Placement handles; 1 without placement.
    pub handles: u16,
    /// The divisor of its scale. Sizes in bytes, numbers of requests and run times are divided by it.
    pub scale: u32,
}

/// All clones of all jobs.
pub struct Plan {
    /// Names of the jobs, in the order of the file.
    pub jobs: Vec<String>,
    pub(super) workers: Vec<Worker>,
    /// Sizes that were adapted to the drive.
    pub warnings: Vec<String>,
}

/// One clone of a job.
pub(super) struct Worker {
    pub(super) job: usize,
    pub(super) requests: Requests,
    pub(super) queue_depth: usize,
    pub(super) bytes_per_second: [Option<u64>; 3],
    pub(super) requests_per_second: [Option<u64>; 3],
    pub(super) is_poisson: bool,
    pub(super) think_ns: u64,
    pub(super) think_requests: u64,
    pub(super) start_delay_ns: u64,
    pub(super) runtime_ns: Option<u64>,
    pub(super) ramp_ns: u64,
    pub(super) handles: Vec<u16>,
    pub(super) random_handle: bool,
    pub(super) ends_all: bool,
    /// Number of the phase: jobs with `stonewall` begin a new one.
    pub(super) phase: usize,
    /// Workers that must have ended first.
    pub(super) after: Vec<usize>,
}

impl Plan {
    /// Places the jobs of `file` on the drive.
    ///
    /// # Errors
    /// The first job that does not fit, and why.
    pub fn new(file: &JobFile, target: Target, seed: u64) -> Result<Self, JobError> {
        let mut plan = Self { jobs: Vec::new(), workers: Vec::new(), warnings: Vec::new() };
        let mut files = Files { target, next_byte: 0, extents: HashMap::new() };
        let (mut phase, mut barrier) = (0, 0);
        for (number, job) in file.jobs.iter().enumerate() {
            plan.jobs.push(job.name.clone());
            if job.waits_for_all && number > 0 {
                (phase, barrier) = (phase + 1, plan.workers.len());
            }
            let mut after: Vec<usize> = (0..barrier).collect();
            if let Some(name) = &job.waits_for {
                let is_named = |worker: usize| file.jobs[plan.workers[worker].job].name == *name;
                after.extend((barrier..plan.workers.len()).filter(|&worker| is_named(worker)));
            }
            for clone in 0..job.clones {
                let extent = files.extent(job, number, clone, &mut plan.warnings)?;
                let seed_worker = plan.workers.len();
                let worker = worker(job, (number, phase), extent, target, (seed, seed_worker))?;
                plan.workers.push(Worker { after: after.clone(), ..worker });
            }
        }
        Ok(plan)
    }
}

/// Extents of the files. A device file is the whole drive; other files lie one behind the other.
struct Files {
    target: Target,
    next_byte: u64,
    extents: HashMap<String, Extent>,
}

/// Files begin at a multiple of this.
const FILE_ALIGNMENT_BYTES: u64 = 64 << 10;

fn refuse<T>(job: &Job, key: &str, reason: impl AsRef<str>) -> Result<T, JobError> {
    let reason = format!("[{}]: {}", job.name, reason.as_ref());
    Err(JobError { line: job.line, key: key.to_owned(), reason, is_unknown_key: false })
}

impl Files {
    /// The range that one clone of a job covers.
    fn extent(
        &mut self,
        job: &Job,
        number: usize,
        clone: u32,
        warnings: &mut Vec<String>,
    ) -> Result<Extent, JobError> {
        let Target { capacity_bytes, scale, .. } = self.target;
        let amount = |amount: Amount| amount.of(capacity_bytes, u64::from(scale));
        let file = self.file(job, number, clone, &amount)?;
        let block_bytes = job.pattern.mix.kinds().iter().map(|&kind| workload::fio::kind_index(kind));
        let block_bytes = block_bytes.map(|at| job.block_bytes[at].smallest()).max().unwrap_or(1);
        let aligned = |bytes: u64| bytes / block_bytes * block_bytes;
        let offset = aligned(amount(job.offset)) + aligned(amount(job.offset_increment)) * u64::from(clone);
        if offset >= file.bytes {
            let reason = format!("{offset} bytes is past the end of the file or drive, {} bytes", file.bytes);
            return refuse(job, "offset", reason);
        }
        let wanted = job.size.map_or(file.bytes - offset, amount);
        if wanted > file.bytes - offset {
            warnings.push(format!(
                "line {}: [{}] size: {wanted} bytes reach past the end; the range is {} bytes",
                job.line,
                job.name,
                file.bytes - offset
            ));
        }
        let bytes = wanted.min(file.bytes - offset);
        if bytes < block_bytes {
            let reason = format!("{bytes} bytes are less than a block of {block_bytes} bytes");
            return refuse(job, "size", reason);
        }
        Ok(Extent { first_byte: file.first_byte + offset, bytes })
    }

    fn file(
        &mut self,
        job: &Job,
        number: usize,
        clone: u32,
        amount: &impl Fn(Amount) -> u64,
    ) -> Result<Extent, JobError> {
        let whole = Extent { first_byte: 0, bytes: self.target.capacity_bytes };
        let name = match &job.file {
            Some(name) if name.starts_with("/dev/") => return Ok(whole),
            Some(name) => name.clone(),
            // A section's name may occur twice.
            None => format!("{number} {} {clone}", job.name),
        };
        let end = job.file_bytes.map(amount).or_else(|| Some(amount(job.offset) + amount(job.size?)));
        let bytes = end.unwrap_or(whole.bytes).min(whole.bytes);
        if let Some(known) = self.extents.get(&name).filter(|known| known.bytes >= bytes) {
            return Ok(*known);
        }
        let extent = Extent { first_byte: self.next_byte, bytes };
        if extent.first_byte + bytes > whole.bytes {
            let reason = format!(
                "the files of the jobs up to this one have {} bytes, more than the drive's {}; give smaller sizes, or filename=/dev/nvme0n1 for the whole drive",
                extent.first_byte + bytes,
                whole.bytes
            );
            return refuse(job, "size", reason);
        }
        self.next_byte = (extent.first_byte + bytes).next_multiple_of(FILE_ALIGNMENT_BYTES);
        self.extents.insert(name, extent);
        Ok(extent)
    }
}

fn worker(
    job: &Job,
    (number, phase): (usize, usize),
    extent: Extent,
    target: Target,
    (seed, seed_worker): (u64, usize),
) -> Result<Worker, JobError> {
    let scale = u64::from(target.scale);
    let limit_bytes = job.io_size.map(|amount| amount.of(target.capacity_bytes, scale));
    let scaled = Job { max_requests: job.max_requests.map(|count| (count / scale).max(1)), ..job.clone() };
    Ok(Worker {
        job: number,
        requests: Requests::new(&scaled, (extent, scale), limit_bytes, seed, seed_worker),
        queue_depth: if job.is_synchronous { 1 } else { job.queue_depth as usize },
        bytes_per_second: job.bytes_per_second,
        requests_per_second: job.requests_per_second,
        is_poisson: job.is_poisson,
        think_ns: job.think_ns,
        think_requests: job.think_blocks,
        start_delay_ns: job.start_delay_ns / scale,
        runtime_ns: job.runtime_ns.map(|ns| (ns / scale).max(1)),
        ramp_ns: job.ramp_ns / scale,
        handles: handles(job, target.handles)?,
        random_handle: job.random_placement,
        ends_all: job.ends_all,
        phase,
        after: Vec::new(),
    })
}

/// The placement handles that a job's writes use.
fn handles(job: &Job, available: u16) -> Result<Vec<u16>, JobError> {
    if !job.has_placement {
        return Ok(vec![0]);
    }
    // A drive without placement ignores the identifiers, as fio's target does; they still separate the figures.
    if let Some(handle) = job.placement_ids.iter().find(|&&handle| available > 1 && handle >= available) {
        let reason =
            format!("identifier {handle}: the drive has {available} handles, 0 to {}", available - 1);
        return refuse(job, "fdp_pli", reason);
    }
    match &job.placement_ids[..] {
        [] => Ok((0..available).collect()),
        ids => Ok(ids.to_vec()),
    }
}
