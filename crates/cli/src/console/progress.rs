//! Progress of a command: a bar on a terminal, updated at most ten times a second; elsewhere, on request, a line of
//! text every few seconds.

use crate::console::report::note;
use crate::console::size::Human;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use kiln_builder::Progress;
use parking_lot::Mutex;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// Time between two lines.
const PERIOD: Duration = Duration::from_secs(3);

/// The option `--quiet`.
#[derive(Clone, Copy, clap::Args)]
pub struct QuietArgs {
    /// Print nothing but errors and skipped inputs
    #[arg(short, long)]
    pub quiet: bool,
}

/// Options that show or hide progress.
#[derive(Clone, Copy, clap::Args)]
pub struct ShownArgs {
    /// Show progress even if standard error is no terminal
    #[arg(long, overrides_with = "no_progress")]
    progress: bool,

    /// Show no progress
    #[arg(long, overrides_with = "progress")]
    no_progress: bool,
}

impl ShownArgs {
    /// Returns a meter. It shows nothing for `quiet` commands, and where progress is not wanted.
    pub fn meter(&self, quiet: bool) -> Meter {
        match io::stderr().is_terminal() {
            _ if quiet || self.no_progress => Meter::Nothing,
            true => Meter::bar(),
            false if self.progress => Meter::Lines(Mutex::new(Lines::starting(Instant::now()))),
            false => Meter::Nothing,
        }
    }
}

/// Counts bytes, for any number of threads. A bar disappears on drop.
pub enum Meter {
    /// No progress is shown.
    Nothing,
    /// A bar on a terminal.
    Bar(ProgressBar),
    /// Lines elsewhere.
    Lines(Mutex<Lines>),
}

const BAR: &str = "{bar:30} {percent:>3}%  {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta} left";

/// The same without a total, as for a stream.
const OPEN_BAR: &str = "{binary_bytes}  {binary_bytes_per_sec}";

/// Returns the style of a template. If ours did not parse, it would be the default.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Meter {
    fn bar() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        Meter::Bar(bar.with_style(style(BAR)))
    }

    /// Returns whether anything is shown: otherwise an expensive total is not worth its cost.
    pub fn is_shown(&self) -> bool {
        !matches!(self, Meter::Nothing)
    }

    /// Sets the number of bytes that are done, and the total.
    pub fn set(&self, done_bytes: u64, total_bytes: u64) {
        match self {
            Meter::Nothing => {}
            Meter::Bar(bar) => {
                if total_bytes > 0 {
                    bar.set_length(total_bytes);
                } else if bar.length().is_some() {
                    bar.unset_length();
                    bar.set_style(style(OPEN_BAR));
                }
                bar.set_position(done_bytes);
            }
            Meter::Lines(lines) => {
                let mut lines = lines.lock();
                lines.set(done_bytes, total_bytes);
                lines.tell();
            }
        }
    }

    /// Runs `work` and shows its progress. A bar goes away when the work has ended.
    pub fn watch<T>(self, work: impl FnOnce(&(dyn Fn(Progress) + Sync)) -> T) -> T {
        work(&|progress: Progress| self.set(progress.done_bytes, progress.total_bytes))
    }

    /// So many bytes more are done.
    pub fn advance(&self, bytes: u64) {
        match self {
            Meter::Nothing => {}
            Meter::Bar(bar) => bar.inc(bytes),
            Meter::Lines(lines) => {
                let mut lines = lines.lock();
                lines.done_bytes = lines.done_bytes.saturating_add(bytes);
                lines.tell();
            }
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Meter::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// Progress as text.
pub struct Lines {
    done_bytes: u64,
    /// Total, or 0 if it is not known.
    total_bytes: u64,
    /// The last line was printed.
    has_ended: bool,
    start: Instant,
    /// Time of the next line.
    due: Instant,
}

impl Lines {
    fn starting(now: Instant) -> Self {
        Self { done_bytes: 0, total_bytes: 0, has_ended: false, start: now, due: now + PERIOD }
    }

    fn set(&mut self, done_bytes: u64, total_bytes: u64) {
        (self.done_bytes, self.total_bytes) = (done_bytes, total_bytes);
        self.has_ended &= total_bytes > 0 && done_bytes >= total_bytes;
    }

    fn tell(&mut self) {
        if let Some(line) = self.line(Instant::now()) {
            note(format_args!("{line}"));
        }
    }

    /// Returns the line to print `now`: none before its time, except that all is done.
    fn line(&mut self, now: Instant) -> Option<String> {
        let (done, total) = (self.done_bytes, self.total_bytes);
        let is_done = total > 0 && done >= total && !self.has_ended;
        if (now < self.due || self.has_ended) && !is_done {
            return None;
        }
        self.due = now + PERIOD;
        // This line is printed once.
        self.has_ended = is_done;
        let took = now.saturating_duration_since(self.start).max(Duration::from_millis(1));
        let rate = done as f64 / took.as_secs_f64();
        let told_rate = format!("{}/s", Human(rate as u64));
        if total == 0 {
            return (done > 0).then(|| format!("{}, {told_rate}", Human(done)));
        }
        let done = done.min(total);
        let percent = u128::from(done) * 100 / u128::from(total);
        let line = format!("{percent}%, {} of {}, {told_rate}", Human(done), Human(total));
        // At a tiny rate, or one of 0, it is longer than a duration can be.
        let left = Duration::try_from_secs_f64((total - done) as f64 / rate).ok().filter(|_| !is_done);
        Some(match left {
            Some(left) => format!("{line}, {} left", HumanDuration(left)),
            None => line,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_every_few_seconds_and_at_the_end() {
        let start = Instant::now();
        let mut lines = Lines::starting(start);
        let mut at = |millis: u64, done_bytes: u64, total: u64| {
            lines.set(done_bytes, total);
            lines.line(start + Duration::from_millis(millis))
        };
        assert_eq!([at(0, 0, 4096), at(2999, 1, 4096)], [None, None]);
        assert_eq!(at(3000, 1024, 4096).as_deref(), Some("25%, 1.0 KiB of 4.0 KiB, 341 B/s, 9 seconds left"));
        assert_eq!(at(5999, 2000, 4096), None);
        assert_eq!(at(8000, 4095, 4096).as_deref(), Some("99%, 4.0 KiB of 4.0 KiB, 511 B/s, 0 seconds left"));
        assert_eq!(at(8100, 5000, 4096).as_deref(), Some("100%, 4.0 KiB of 4.0 KiB, 617 B/s"));
        assert_eq!([at(8101, 5000, 4096), at(99_000, 5000, 4096)], [None, None]);
        // A stream has no total.
        assert_eq!(at(99_000, 1024, 0).as_deref(), Some("1.0 KiB, 10 B/s"));
        assert_eq!(at(99_001, 2048, 0), None);
    }
}
