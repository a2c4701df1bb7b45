//! A layer between the sources of an image and the image.

use super::read_at::ReadAt;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Function that wraps a source.
type Wrap = dyn Fn(u16, Arc<dyn ReadAt>) -> io::Result<Arc<dyn ReadAt>> + Send + Sync;

/// A layer over the sources of an image, through which all of its bytes are read: one that verifies
/// them, for example.
///
/// ```
/// # fn main() -> Result<(), kiln_read::ReadError> {
/// use kiln_read::{ImageSources, OffsetSource, SourceLayer};
/// use std::sync::Arc;
///
/// // A layer that hides the first 512 bytes of each device.
/// let layer = SourceLayer::new(|_device, source| Ok(Arc::new(OffsetSource::new(source, 512)?)));
/// # let path = std::env::temp_dir().join(format!("kiln-layer-{}", std::process::id()));
/// # let bytes = std::fs::read("tests/golden/zstd.erofs").expect("a file");
/// # std::fs::write(&path, [&[0; 512], &bytes[..]].concat()).expect("a file");
/// let image = ImageSources::from_paths(&path, &[]).with_layer(layer).open(&Default::default())?;
/// # std::fs::remove_file(&path).expect("a file");
/// # assert!(image.superblock().inos > 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SourceLayer(Arc<Wrap>);

impl SourceLayer {
    /// Returns the layer that `wrap` makes over each device: 0 is the image, from its first byte
    /// on, others are its extra devices in order.
    pub fn new(wrap: impl Fn(u16, Arc<dyn ReadAt>) -> io::Result<Arc<dyn ReadAt>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(wrap))
    }

    /// Returns the layer over a device.
    ///
    /// # Errors
    /// Those of the layer, which may read the source.
    pub fn over(&self, device: u16, source: Arc<dyn ReadAt>) -> io::Result<Arc<dyn ReadAt>> {
        (self.0)(device, source)
    }
}

impl fmt::Debug for SourceLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SourceLayer")
    }
}
