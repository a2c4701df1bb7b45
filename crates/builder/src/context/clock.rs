//! CPU and wall time of the phases of a build.

use parking_lot::Mutex;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::{Duration, Instant};

/// Time that a phase took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Its name.
    pub name: &'static str,
    /// Elapsed time.
    pub wall: Duration,
    /// User and system time of the whole process.
    pub cpu: Duration,
}

/// Measures the time of phases.
#[derive(Debug)]
pub struct PhaseClock(Mutex<Times>);

#[derive(Debug)]
struct Times {
    /// Start of the running phase.
    wall: Instant,
    /// CPU time of the process at that moment.
    cpu: Duration,
    phases: Vec<Phase>,
}

impl PhaseClock {
    /// Starts the first phase.
    pub fn start() -> Self {
        Self(Mutex::new(Times { wall: Instant::now(), cpu: process_cpu(), phases: Vec::new() }))
    }

    /// Ends the running phase, calls it `name`, and starts the next.
    pub fn finish(&self, name: &'static str) {
        let (wall, cpu) = (Instant::now(), process_cpu());
        let mut times = self.0.lock();
        let phase = Phase { name, wall: wall - times.wall, cpu: cpu.saturating_sub(times.cpu) };
        times.phases.push(phase);
        (times.wall, times.cpu) = (wall, cpu);
    }

    /// Returns all phases that have ended.
    pub fn phases(self) -> Vec<Phase> {
        self.0.into_inner().phases
    }
}

fn process_cpu() -> Duration {
    duration(clock_gettime(ClockId::ProcessCPUTime))
}

fn duration(time: Timespec) -> Duration {
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.clamp(0, 999_999_999) as u32)
}

/// Returns user and system time of this thread.
pub(crate) fn thread_cpu() -> Duration {
    duration(clock_gettime(ClockId::ThreadCPUTime))
}
