//! Progress of a command: a bar on a terminal, updated at most ten times a second; elsewhere, on request, a line of
//! text every few seconds.

use crate::console::report::note;
use crate::console::size::Human;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
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

impl Meter {
    fn bar() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        // If our template does not parse, the default style is shown.
        Meter::Bar(match ProgressStyle::with_template(BAR) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        })
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
                bar.set_length(total_bytes);
                bar.set_position(done_bytes);
            }
            Meter::Lines(lines) => {
                let mut lines = lines.lock();
                (lines.done_bytes, lines.total_bytes) = (done_bytes, total_bytes);
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
    total_bytes: u64,
    /// Time of the next line.
    due: Instant,
}

impl Lines {
    fn starting(now: Instant) -> Self {
        Self { done_bytes: 0, total_bytes: 0, due: now + PERIOD }
    }

    fn tell(&mut self) {
        if let Some(line) = self.line(Instant::now()) {
            note(format_args!("{line}"));
        }
    }

    /// Returns the line to print `now`: none before its time, except that all is done.
    fn line(&mut self, now: Instant) -> Option<String> {
        let is_done = self.done_bytes >= self.total_bytes;
        if now < self.due && !(is_done && self.total_bytes > 0) {
            return None;
        }
        self.due = now + PERIOD;
        let (done, total) = (self.done_bytes.min(self.total_bytes), self.total_bytes);
        let percent = (u128::from(done) * 100).checked_div(total.into()).unwrap_or(0);
        if is_done {
            // This line is printed once.
            self.total_bytes = 0;
        }
        (total > 0).then(|| format!("{percent}%, {} of {}", Human(done), Human(total)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_every_few_seconds_and_at_the_end() {
        let start = Instant::now();
        let mut lines = Lines::starting(start);
        let mut at = |millis: u64, done_bytes: u64| {
            (lines.done_bytes, lines.total_bytes) = (done_bytes, 4096);
            lines.line(start + Duration::from_millis(millis))
        };
        assert_eq!([at(0, 0), at(2999, 1)], [None, None]);
        assert_eq!(at(3000, 1024).as_deref(), Some("25%, 1.0 KiB of 4.0 KiB"));
        assert_eq!(at(5999, 2000), None);
        assert_eq!(at(6500, 4095).as_deref(), Some("99%, 4.0 KiB of 4.0 KiB"));
        assert_eq!(at(6600, 5000).as_deref(), Some("100%, 4.0 KiB of 4.0 KiB"));
    }
}
