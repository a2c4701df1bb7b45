//! `--content-digests`

use kiln_builder::ContentDigests;
use kiln_tree::DigestName;

#[derive(clap::Args)]
pub struct DigestArgs {
    /// Store the SHA-256 of each file, to detect damage
    #[arg(long, conflicts_with = "no_content_digests")]
    content_digests: bool,

    /// Store no digests of files
    #[arg(long)]
    no_content_digests: bool,
}

impl DigestArgs {
    /// Returns the choice that was asked for, or `default`.
    pub fn choice(&self, default: ContentDigests) -> ContentDigests {
        match (self.content_digests, self.no_content_digests) {
            (true, _) => ContentDigests::Named(DigestName::Usual),
            (_, true) => ContentDigests::Off,
            _ => default,
        }
    }
}
