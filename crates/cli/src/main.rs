//! The program `kiln`.

#[global_allocator]
static ALLOCATOR: kiln_command::EndingAllocator = kiln_command::EndingAllocator;

fn main() -> std::process::ExitCode {
    kiln_command::EndingAllocator::share_free_memory();
    kiln_command::main(std::env::args_os())
}
