//! `--content-digests`

use kiln_builder::{ContentDigests, ContentHash, MetadataOptions};
use kiln_tree::DigestName;

#[derive(clap::Args)]
pub struct DigestArgs {
    /// Store digests of files: sha256, fsverity-sha256, fsverity-sha512
    #[arg(
        long,
        value_name = "HASH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "sha256",
        conflicts_with = "no_content_digests"
    )]
    content_digests: Option<ContentHash>,

    /// Store no digests of files
    #[arg(long)]
    no_content_digests: bool,
}

impl DigestArgs {
    /// Sets the choice that was asked for, if one was.
    pub fn apply(&self, metadata: &mut MetadataOptions) {
        if self.no_content_digests {
            metadata.content_digests = ContentDigests::Off;
        }
        if let Some(hash) = self.content_digests {
            metadata.content_digests = ContentDigests::Named(DigestName::Usual);
            metadata.digest_hash = Some(hash);
        }
    }
}
