//! Layers of images: trees that become EROFS images among the blobs of a layout.

use crate::console::progress::ProgressArgs;
use crate::exit::Failure;
use crate::image::DEVICE_OPTION;
use crate::pack::preset::{PresetArg, refusal};
use crate::pack::{Job, source_date_epoch, tell_notes};
use crate::process::signals::Signals;
use crate::process::threads::ThreadsArgs;
use kiln::oci::{LayerType, LayoutDir};
use kiln::{Error, PackRequest};
use kiln_builder::{BuildOptions, Choices, IdentityOptions, Out, Progress, WorkOptions};
use kiln_source::Source;
use kiln_source::dir::FileId;
use kiln_source::oci::records::Descriptor;
use kiln_tree::filter::Filter;
use kiln_tree::policy::Policy;
use std::path::Path;

/// How layers are made.
#[derive(clap::Args)]
pub struct LayerArgs {
    /// The image's name in LAYOUTDIR, which has one image of a name for each platform: one that is there already is no
    /// longer listed
    #[arg(long)]
    pub tag: Option<String>,

    /// How the EROFS images are made
    #[arg(long, value_enum, default_value_t)]
    preset: PresetArg,

    /// What layers are called: application/vnd.erofs, or application/vnd.erofs.layer.v1, which containerd takes
    #[arg(long, value_enum, default_value_t, value_name = "erofs|containerd", hide_possible_values = true)]
    media_type: MediaType,

    #[command(flatten)]
    threads: ThreadsArgs,

    #[command(flatten)]
    pub progress: ProgressArgs,
}

#[derive(Clone, Copy, Default, clap::ValueEnum)]
enum MediaType {
    #[default]
    Erofs,
    Containerd,
}

impl LayerArgs {
    /// Build what `source` has, as a blob of `layout`.
    pub fn build(&self, source: &dyn Source, layout: &LayoutDir, signals: &Signals) -> Result<Descriptor, Failure> {
        let blob = layout.new_blob()?;
        let choices = Choices { preset: self.preset.into(), ..Choices::default() };
        let options = choices.build_options().map_err(|error| refusal(&error, &choices))?;
        let (threads, scratch_dir) = (self.threads.threads(), blob.dir_path().to_owned());
        let options = BuildOptions {
            work: WorkOptions { threads, scratch_dir, ..options.work },
            identity: IdentityOptions { source_date_epoch: source_date_epoch()?, ..options.identity },
            ..options
        };
        let outputs: Vec<FileId> = FileId::of(blob.file()).into_iter().collect();
        let (policy, filter) = (Policy::default(), Filter::default());
        let request = PackRequest {
            source,
            base: None,
            filter: &filter,
            policy: &policy,
            outputs: &outputs,
            is_backup: false,
            stop: signals.stop(),
        };
        let job = Job { request, image: blob.dir_path(), signals };
        let scan = job.scan(&options)?;
        tell_notes(&scan);
        let meter = self.progress.meter();
        let progress = |progress: Progress| meter.set(progress.done_bytes, progress.total_bytes);
        job.build(&scan.tree, Out::from(&blob), &options, &progress)?;
        drop(meter);
        layout.add_blob(blob, self.layer_type().media_type()).map_err(failure)
    }

    fn layer_type(&self) -> LayerType {
        match self.media_type {
            MediaType::Erofs => LayerType::Erofs,
            MediaType::Containerd => LayerType::Containerd,
        }
    }
}

/// The layout at `path`, to add to.
pub fn open_layout(path: &Path) -> Result<LayoutDir, Failure> {
    LayoutDir::open_or_create(path).map_err(failure)
}

/// What a layout as an output can fail for.
pub fn failure(error: Error) -> Failure {
    match error {
        Error::Output(error) => error.into(),
        Error::Source(error) => Failure::of_source(error, None, DEVICE_OPTION),
        misuse => Failure::Usage(misuse.to_string()),
    }
}
