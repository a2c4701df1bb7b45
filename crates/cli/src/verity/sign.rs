//! `kiln verity sign`

use super::signed::{failure, read_certificate, read_key};
use crate::console::progress::QuietArgs;
use crate::console::report::{Out, note};
use crate::exit::{Exit, Failure};
use crate::pack::out_args::ForceArg;
use crate::root_hash;
use kiln_output::{AtomicFile, write_all_at};
use kiln_signature::partition::Partition;
use kiln_signature::{PrivateKey, root_hash_content};
use kiln_verity::Digest;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Sign a root hash
///
/// The signature is PKCS#7, detached, with the certificate: that of `systemd-repart`, byte for byte with a key of RSA,
/// which the kernel takes as well. Keys are of RSA or of the curves P-256 and P-384.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln verity sign image.roothash --key key.pem --certificate certificate.pem
  kiln verity sign 5a8c... --key key.pem --certificate certificate.pem --output image.roothash.p7s")]
pub struct Args {
    /// Root hash: hexadecimal digits, or a file with them
    #[arg(value_name = "HEX|FILE")]
    root_hash: OsString,

    /// Private key of the signer: PKCS#8, in PEM, without a password
    #[arg(long, value_name = "FILE")]
    key: PathBuf,

    /// Certificate of the signer: X.509, in PEM or DER
    #[arg(long, value_name = "FILE")]
    certificate: PathBuf,

    /// Write the signature to FILE; default: the file of the root hash with .p7s behind its name
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Write the signature as a partition for systemd to FILE, too
    #[arg(long, value_name = "FILE")]
    partition_file: Option<PathBuf>,

    /// Print the command of OpenSSL that makes the same signature, for keys that are no files
    #[arg(long)]
    print_command: bool,

    #[command(flatten)]
    replace: ForceArg,

    #[command(flatten)]
    quiet: QuietArgs,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let root_hash = root_hash::parse(&args.root_hash).map_err(Failure::Usage)?;
    let output = match &args.output {
        Some(path) => path.clone(),
        None if Path::new(&args.root_hash).exists() => {
            let mut name = args.root_hash.clone();
            name.push(".p7s");
            name.into()
        }
        None => return Err(Failure::Usage("no file of a root hash: name the signature with --output".to_owned())),
    };
    if args.print_command {
        return print_command(&root_hash, args, &output);
    }
    let key = PrivateKey::parse_pem(&read_key(&args.key)?).map_err(|error| failure(&args.key, error))?;
    let certificate = read_certificate(&args.certificate)?;
    let content = root_hash_content(root_hash.as_bytes());
    let signature =
        kiln_signature::sign(&content, &key, &certificate).map_err(|error| failure(&args.certificate, error))?;
    let partition = match &args.partition_file {
        Some(path) => {
            let partition = Partition::new(root_hash.as_bytes(), &signature, &certificate).encode();
            Some((path, partition.map_err(|error| failure(path, error))?))
        }
        None => None,
    };
    write_file(&output, &signature, args)?;
    if let Some((path, bytes)) = partition {
        write_file(path, &bytes, args)?;
    }
    if !args.quiet.quiet {
        note(format_args!("{}: signed by {}", output.display(), certificate.subject()));
    }
    Ok(Exit::Done)
}

fn write_file(path: &Path, bytes: &[u8], args: &Args) -> Result<(), Failure> {
    let file = AtomicFile::create(path, args.replace.existing())?;
    let written = write_all_at(&file, bytes, 0);
    written.map_err(|source| Failure::File { path: path.to_owned(), action: "write", source })?;
    Ok(file.commit()?)
}

/// Prints the command that signs with OpenSSL, which knows keys in tokens as well.
fn print_command(root_hash: &Digest, args: &Args, output: &Path) -> Result<Exit, Failure> {
    let mut out = Out::new();
    write!(out, "printf %s {root_hash} | openssl smime -sign -noattr -binary -outform der")?;
    for (option, path) in [("-inkey", &*args.key), ("-signer", &*args.certificate), ("-out", output)] {
        write!(out, " {option} ")?;
        out.write_all(&quoted(path))?;
    }
    writeln!(out)?;
    out.finish()?;
    Ok(Exit::Done)
}

/// Returns a path as one word of a shell.
fn quoted(path: &Path) -> Vec<u8> {
    let escaped = path.as_os_str().as_bytes().split(|&byte| byte == b'\'').collect::<Vec<_>>().join(&br"'\''"[..]);
    [b"'", &*escaped, b"'"].concat()
}
