//! Makes an image of a dump: `mkcomposefs DUMP IMAGE [MIN_VERSION]`. Prints the digest of the image.

use kiln_composefs::image::{ImageOptions, Version};
use std::error::Error;
use std::fs::File;
use std::io::BufReader;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let (Some(dump), Some(image)) = (args.next(), args.next()) else {
        return Err("usage: mkcomposefs DUMP IMAGE [MIN_VERSION]".into());
    };
    let min_version = if args.next().is_some_and(|version| version == "1") { Version::V1 } else { Version::V0 };
    let options = ImageOptions { min_version, ..ImageOptions::default() };
    let tree = kiln_composefs::dump::read(BufReader::new(File::open(dump)?), &mut |_| {})?;
    let summary = kiln_composefs::image::write(&tree, &options, &mut File::create(image)?)?;
    println!("{}", summary.digest.map_or_else(String::new, |digest| digest.to_string()));
    Ok(())
}
