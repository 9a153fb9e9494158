//! Sections, lines and variables of a job file.

use super::keys::{self, Handling};
use super::{Job, JobError, JobFile};

impl JobFile {
    /// Parses a job file. `variable` returns the value of an environment variable.
    ///
    /// # Errors
    /// The first line that is not understood, with the reason.
    pub fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, JobError> {
        let mut reader = Reader {
            defaults: Job::default(),
            jobs: Vec::new(),
            section: Section::None,
            warnings: Vec::new(),
            kb_base: 1024,
            line: 0,
        };
        for (number, line) in text.lines().enumerate() {
            reader.line = number + 1;
            reader.read(line, &variable)?;
        }
        if reader.jobs.is_empty() {
            return Err(refuse(0, "", "the file has no job section, such as [job]"));
        }
        let Reader { jobs, mut warnings, .. } = reader;
        for job in &jobs {
            check(job)?;
            if job.is_synchronous && job.queue_depth > 1 {
                warnings.push(format!(
                    "line {}: [{}] has iodepth={} and a synchronous ioengine (fio's default is psync): one request is in flight",
                    job.line, job.name, job.queue_depth
                ));
            }
        }
        check_references(&jobs)?;
        Ok(Self { jobs, warnings })
    }
}

struct Reader {
    defaults: Job,
    jobs: Vec<Job>,
    section: Section,
    warnings: Vec<String>,
    kb_base: u32,
    line: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Section {
    None,
    Global,
    Job,
}

fn refuse(line: usize, key: &str, reason: impl Into<String>) -> JobError {
    JobError { line, key: key.to_owned(), reason: reason.into(), is_unknown_key: false }
}

impl Reader {
    fn read(&mut self, line: &str, variable: &impl Fn(&str) -> Option<String>) -> Result<(), JobError> {
        // fio cuts comments anywhere in a line.
        let line = line.split([';', '#']).next().unwrap_or("").trim();
        if line.is_empty() {
            return Ok(());
        }
        if let Some(name) = line.strip_prefix('[') {
            let name = name
                .strip_suffix(']')
                .ok_or_else(|| refuse(self.line, "", "a section's name must end in ]"))?;
            self.begin_section(name);
            return Ok(());
        }
        let (key, value) = line.split_once('=').map_or((line, ""), |(key, value)| (key.trim(), value.trim()));
        if let Some(file) = key.strip_prefix("include ") {
            return Err(refuse(
                self.line,
                "include",
                format!("copy the lines of {} here instead", file.trim()),
            ));
        }
        let value = expand(value, variable).map_err(|reason| refuse(self.line, key, reason))?;
        self.set(key, value.trim().trim_matches('"'))
    }

    fn begin_section(&mut self, name: &str) {
        if name == "global" {
            self.section = Section::Global;
            return;
        }
        self.section = Section::Job;
        self.jobs.push(Job { name: name.to_owned(), line: self.line, ..self.defaults.clone() });
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), JobError> {
        let line = self.line;
        let job = match self.section {
            Section::None => return Err(refuse(line, key, "stands before the first section")),
            Section::Global => &mut self.defaults,
            Section::Job => self.jobs.last_mut().unwrap_or(&mut self.defaults),
        };
        let is_off = matches!(value, "0" | "none" | "false");
        match keys::find(key) {
            Some(Handling::Set(parse)) => {
                parse(job, value, self.kb_base).map_err(|reason| refuse(line, key, reason))?;
            }
            Some(Handling::Warn(reason)) if !is_off => {
                self.warnings.push(format!("line {line}: {key}: {reason}"));
            }
            Some(Handling::Refuse(reason)) if !is_off => {
                return Err(refuse(line, key, format!("is not supported: {reason}")));
            }
            Some(_) => (),
            None => {
                let reason = "is not a key that the model supports".to_owned();
                return Err(JobError { line, key: key.to_owned(), reason, is_unknown_key: true });
            }
        }
        match (key, value) {
            ("kb_base", _) => self.kb_base = if value == "1000" { 1000 } else { 1024 },
            ("direct", "0") => self
                .warnings
                .push(format!("line {line}: direct: the model has no page cache: requests go to the drive")),
            _ => (),
        }
        Ok(())
    }
}

/// Replaces `${NAME}` by the environment variable.
fn expand(value: &str, variable: &impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let (mut result, mut rest) = (String::new(), value);
    while let Some((before, behind)) = rest.split_once("${") {
        let (name, behind) = behind.split_once('}').ok_or("a variable's name must end in }")?;
        let value = variable(name).ok_or_else(|| format!("the environment variable {name} is not set"))?;
        result = result + before + &value;
        rest = behind;
    }
    Ok(result + rest)
}

fn check(job: &Job) -> Result<(), JobError> {
    let wrong = |key, reason: String| Err(refuse(job.line, key, format!("[{}]: {reason}", job.name)));
    if job.is_time_based && job.runtime_ns.is_none() {
        return wrong("time_based", "needs a runtime".into());
    }
    if !job.placement_ids.is_empty() && !job.has_placement {
        return wrong("fdp_pli", "has no effect without fdp=1".into());
    }
    Ok(())
}

fn check_references(jobs: &[Job]) -> Result<(), JobError> {
    for (number, job) in jobs.iter().enumerate() {
        let Some(name) = &job.waits_for else { continue };
        if !jobs[..number].iter().any(|earlier| earlier.name == *name) {
            return Err(refuse(
                job.line,
                "wait_for",
                format!("[{}]: no job above is called {name:?}", job.name),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{AccessPattern, Amount, BlockSizes, Distribution, Mix};
    use super::*;

    fn parse(text: &str) -> Result<JobFile, JobError> {
        JobFile::parse(text, |name| (name == "SIZE").then(|| "64m".to_owned()))
    }

    #[test]
    fn jobs_take_the_global_sections_above_them() {
        let file = parse(
            "; a comment\n[global]\nbs=8k\nrw=randwrite\n[a]\nsize=${SIZE}  # and another\n[global]\nbs=16k\n[b]\nrw=write\nstonewall\n",
        )
        .unwrap();
        let [a, b] = &file.jobs[..] else { panic!("two jobs") };
        assert_eq!((a.name.as_str(), a.line, a.size), ("a", 5, Some(Amount::Bytes(64 << 20))));
        assert_eq!((&a.block_bytes[1], a.pattern.is_random), (&BlockSizes::Range(8192, 8192), true));
        assert_eq!((&b.block_bytes[1], b.pattern.is_random), (&BlockSizes::Range(16_384, 16_384), false));
        assert!(b.waits_for_all && !a.waits_for_all && b.size.is_none());
    }

    #[test]
    fn every_kind_of_value_is_parsed() {
        let file = parse(
            "[j]\nrw=randrw:4\nrwmixread=30\nbssplit=4k/60:64k/40,8k/50:16k/\nrandom_distribution=zoned:80/20:20/80\nioengine=libaio\niodepth=32\nrate=1m,2m\nrate_iops=,500\nthinktime=20ms\nruntime=1h\nfdp=1\nfdp_pli=1,3\noffset=90%\nnumjobs=4\noffset_increment=1g\n",
        )
        .unwrap();
        let job = &file.jobs[0];
        let pattern =
            AccessPattern { mix: Mix::ReadsAndWrites, is_random: true, run_length: 4, skip_bytes: 0 };
        assert_eq!((job.pattern, job.read_share), (pattern, 0.3));
        assert_eq!(job.block_bytes[0], BlockSizes::Split(vec![(4096, 0.6), (65_536, 0.4)]));
        assert_eq!(job.block_bytes[1], BlockSizes::Split(vec![(8192, 0.5), (16_384, 0.5)]));
        assert_eq!(job.distribution[1], Distribution::Zones(vec![(0.8, 0.2), (0.2, 0.8)]));
        assert_eq!((job.queue_depth, job.is_synchronous), (32, false));
        assert_eq!(job.bytes_per_second, [Some(1 << 20), Some(2 << 20), Some(2 << 20)]);
        assert_eq!(job.requests_per_second, [None, Some(500), Some(500)]);
        assert_eq!((job.think_ns, job.runtime_ns), (20_000_000, Some(3_600_000_000_000)));
        assert_eq!((job.placement_ids.clone(), job.offset), (vec![1, 3], Amount::Share(0.9)));
        assert_eq!((job.clones, job.offset_increment), (4, Amount::Bytes(1 << 30)));
    }

    #[test]
    fn errors_name_line_key_and_reason() {
        for (text, expected) in [
            ("", "the file has no job section, such as [job]"),
            ("rw=write\n", "line 1: rw: stands before the first section"),
            ("[j\n", "line 1: a section's name must end in ]"),
            ("[j]\nrw=randwirte\n", "line 2: rw: \"randwirte\" is not supported; valid is read, write"),
            (
                "[j]\nverify=crc32c\n",
                "line 2: verify: is not supported: the model drive stores no data to verify",
            ),
            ("[j]\niodpth=3\n", "line 2: iodpth: is not a key that the model supports"),
            ("[j]\nbs=4k/50\n", "line 2: bs: \"4k/50\" is not a size"),
            ("[j]\nbssplit=4k/50:8k/20\n", "line 2: bssplit: the shares add up to 70 %, not 100 %"),
            ("[j]\nioengine=net\n", "line 2: ioengine: \"net\" does not send requests to a local drive"),
            ("[j]\ntime_based\n", "line 1: time_based: [j]: needs a runtime"),
            ("[j]\nfdp_pli=1\n", "line 1: fdp_pli: [j]: has no effect without fdp=1"),
            ("[j]\nwait_for=k\n", "line 1: wait_for: [j]: no job above is called \"k\""),
            ("[j]\nsize=${NONE}\n", "line 2: size: the environment variable NONE is not set"),
            (
                "[j]\nrandom_distribution=zipf:1\n",
                "line 2: random_distribution: zipf: fio's formula has no value",
            ),
            (
                "[j]\nrandom_distribution=zoned:50/50\n",
                "line 2: random_distribution: zoned: the shares of the requests add up to 50 %",
            ),
            ("[j]\ninclude other.fio\n", "line 2: include: copy the lines of other.fio here instead"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn keys_without_effect_are_accepted_with_a_warning_if_it_matters() {
        let file = parse("[j]\ngroup_reporting\nverify=0\nfsync=1\ndirect=0\niodepth=8\n").unwrap();
        let warnings = file.warnings.join("\n");
        assert_eq!(file.warnings.len(), 3, "{warnings}");
        assert!(
            warnings.contains("line 4: fsync: ignored")
                && warnings.contains("line 5: direct: the model has no page cache")
        );
        assert!(warnings.contains("[j] has iodepth=8 and a synchronous ioengine"));
    }
}
