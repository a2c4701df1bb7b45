//! CPU and wall time of the phases of a build.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::{Duration, Instant};

/// Time that a part of the work took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Its name.
    pub name: &'static str,
    /// By the clock.
    pub wall: Duration,
    /// User and system time of the whole process.
    pub cpu: Duration,
}

/// Takes the time of phases.
#[derive(Debug)]
pub struct PhaseClock {
    wall: Instant,
    cpu: Duration,
    phases: Vec<Phase>,
}

impl PhaseClock {
    /// Start the first phase.
    pub fn start() -> Self {
        Self { wall: Instant::now(), cpu: process_cpu(), phases: Vec::new() }
    }

    /// End the running phase, call it `name`, start the next.
    pub fn finish(&mut self, name: &'static str) {
        let (wall, cpu) = (Instant::now(), process_cpu());
        self.phases.push(Phase { name, wall: wall - self.wall, cpu: cpu.saturating_sub(self.cpu) });
        (self.wall, self.cpu) = (wall, cpu);
    }

    /// All phases that have ended.
    pub fn phases(self) -> Vec<Phase> {
        self.phases
    }
}

fn process_cpu() -> Duration {
    duration(clock_gettime(ClockId::ProcessCPUTime))
}

fn duration(time: Timespec) -> Duration {
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.clamp(0, 999_999_999) as u32)
}

/// User and system time of this thread.
pub(crate) fn thread_cpu() -> Duration {
    duration(clock_gettime(ClockId::ThreadCPUTime))
}
