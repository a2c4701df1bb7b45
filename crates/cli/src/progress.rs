//! The progress bar: on a terminal only, at most ten times a second.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Options of commands that work for long.
#[derive(clap::Args)]
pub struct ProgressArgs {
    /// Say nothing but errors and what was skipped
    #[arg(short, long)]
    pub quiet: bool,

    /// No progress bar; there is none anyway unless standard error is a terminal
    #[arg(long)]
    no_progress: bool,
}

/// A bar that counts bytes. Dropped, it goes away.
pub struct Meter(ProgressBar);

const BAR: &str = "{bar:30} {percent:>3}%  {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta} left";
const SPINNER: &str = "{spinner}  {binary_bytes}  {binary_bytes_per_sec}";

impl Meter {
    /// A bar whose end is known with the first call of [`Meter::set`].
    pub fn bar(args: &ProgressArgs) -> Self {
        Self::new(args, BAR)
    }

    /// For work without a known end.
    pub fn spinner(args: &ProgressArgs) -> Self {
        Self::new(args, SPINNER)
    }

    fn new(args: &ProgressArgs, template: &str) -> Self {
        let target = match args.quiet || args.no_progress {
            true => ProgressDrawTarget::hidden(),
            false => ProgressDrawTarget::stderr_with_hz(10), // draws nothing where there is no terminal
        };
        let bar = ProgressBar::with_draw_target(None, target);
        // A template of ours that does not parse shows the default style instead.
        Self(match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        })
    }

    pub fn set(&self, done_bytes: u64, total_bytes: u64) {
        self.0.set_length(total_bytes);
        self.0.set_position(done_bytes);
    }

    pub fn advance(&self, bytes: u64) {
        self.0.inc(bytes);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
