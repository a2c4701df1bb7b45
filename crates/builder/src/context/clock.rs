//! CPU and wall time of the phases of a build.

use parking_lot::Mutex;
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
pub struct PhaseClock(Mutex<Times>);

#[derive(Debug)]
struct Times {
    /// When the running phase began.
    wall: Instant,
    /// CPU time of the process then.
    cpu: Duration,
    phases: Vec<Phase>,
}

impl PhaseClock {
    /// Start the first phase.
    pub fn start() -> Self {
        Self(Mutex::new(Times { wall: Instant::now(), cpu: process_cpu(), phases: Vec::new() }))
    }

    /// End the running phase, call it `name`, start the next.
    pub fn finish(&self, name: &'static str) {
        let (wall, cpu) = (Instant::now(), process_cpu());
        let mut times = self.0.lock();
        let phase = Phase { name, wall: wall - times.wall, cpu: cpu.saturating_sub(times.cpu) };
        times.phases.push(phase);
        (times.wall, times.cpu) = (wall, cpu);
    }

    /// All phases that have ended.
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

/// User and system time of this thread.
pub(crate) fn thread_cpu() -> Duration {
    duration(clock_gettime(ClockId::ThreadCPUTime))
}
