//! What the machine's memory is, and how much of it this process takes, as far as the system says.
//!
//! On Linux the numbers come from `/proc` and the process's control groups, on Windows from the system's own calls. Elsewhere they are unknown, which callers
//! say instead of guessing.

use kernels::cuda::Device;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// The processor's brand string, if it has one.
pub fn processor_name() -> Option<String> {
    let name = processor::brand()?;
    // Some brand strings are padded with spaces, also in the middle.
    let words: Vec<&str> = name.split_whitespace().collect();
    (!words.is_empty()).then(|| words.join(" "))
}

#[cfg(target_arch = "x86_64")]
mod processor {
    use std::arch::x86_64::{__cpuid, CpuidResult};

    /// The CPUID leaf that gives the highest extended leaf, and the leaves that hold the name, 16 bytes each.
    const EXTENDED: u32 = 0x8000_0000;
    const BRAND: std::ops::RangeInclusive<u32> = 0x8000_0002..=0x8000_0004;

    pub(super) fn brand() -> Option<String> {
        if leaf(EXTENDED).eax < *BRAND.end() {
            return None;
        }
        let words = BRAND
            .map(leaf)
            .flat_map(|it| [it.eax, it.ebx, it.ecx, it.edx]);
        let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        let text = bytes.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    #[allow(unused_unsafe)]
    fn leaf(number: u32) -> CpuidResult {
        // SAFETY: every processor of this architecture has the instruction, which only reads.
        unsafe { __cpuid(number) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod processor {
    pub(super) fn brand() -> Option<String> {
        None
    }
}

/// The machine's memory at one moment, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Machine {
    /// All of it.
    pub total_bytes: u64,
    /// What programs could still take without swapping.
    pub available_bytes: u64,
    /// What this process holds.
    pub process_bytes: u64,
}

impl Machine {
    /// Asks the system; `None` where it does not say.
    pub fn now() -> Option<Machine> {
        let (total_bytes, available_bytes) = system::memory_bytes()?;
        Some(Machine {
            total_bytes,
            available_bytes,
            process_bytes: resident_bytes()?,
        })
    }

    /// A GPU's memory, of which this process holds so many bytes; `None` where the driver does not say.
    pub fn of_device(device: &Device, process_bytes: u64) -> Option<Machine> {
        let memory = device.memory().ok()?;
        Some(Machine {
            total_bytes: memory.total_bytes,
            available_bytes: memory.free_bytes,
            process_bytes,
        })
    }

    /// As if so many quarters of what this process could have of it were not there; at most all four.
    pub(crate) fn without(self, quarters: u64) -> Machine {
        let left = self.room_bytes() / 4 * 4u64.saturating_sub(quarters);
        let available = left.saturating_sub(self.process_bytes);
        Machine {
            available_bytes: self.available_bytes.min(available),
            ..self
        }
    }

    /// What this process could hold altogether: what is available, and what it has.
    pub fn room_bytes(&self) -> u64 {
        self.available_bytes.saturating_add(self.process_bytes)
    }

    /// What other programs and the system hold.
    pub fn others_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.room_bytes())
    }
}

/// Bytes of this process that are in memory; `None` where the system does not say.
pub fn resident_bytes() -> Option<u64> {
    system::resident_bytes()
}

/// The most that [`resident_bytes`] has been.
pub fn peak_bytes() -> Option<u64> {
    system::peak_bytes()
}

/// Gives back to the system what was freed and the allocator still keeps. Large pieces, weights and pool among them, go by
/// themselves; the tokenizer's many small ones do not.
pub(crate) fn give_back_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes no pointer, and memory that is in use stays.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The files below `/proc`.
#[cfg(target_os = "linux")]
mod system {
    use std::fs::read_to_string;

    /// All memory, and what is available, within what this process may have.
    pub(super) fn memory_bytes() -> Option<(u64, u64)> {
        let text = read_to_string("/proc/meminfo").ok()?;
        let machine = (field(&text, "MemTotal:")?, field(&text, "MemAvailable:")?);
        let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
        let read = |path: &std::path::Path| read_to_string(path).ok();
        Some(crate::cgroup::within(machine, &groups, &read))
    }

    pub(super) fn resident_bytes() -> Option<u64> {
        // The roll-up is exact; the status is counted per thread and lags a little.
        let rolled_up = read_to_string("/proc/self/smaps_rollup").ok();
        rolled_up
            .and_then(|text| field(&text, "Rss:"))
            .or_else(|| status("VmRSS:"))
    }

    pub(super) fn peak_bytes() -> Option<u64> {
        status("VmHWM:")
    }

    fn status(name: &str) -> Option<u64> {
        field(&read_to_string("/proc/self/status").ok()?, name)
    }

    /// The value of a line such as `MemTotal:  24684112 kB`, in bytes.
    pub(super) fn field(text: &str, name: &str) -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let mut words = line.split_whitespace();
        let number: u64 = words.next()?.parse().ok()?;
        match words.next() {
            Some("kB") => number.checked_mul(1024),
            _ => None,
        }
    }
}

#[cfg(windows)]
mod system {
    use windows_sys::Win32::System::ProcessStatus::{
        K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS,
    };
    use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};
    use windows_sys::Win32::System::Threading::GetCurrentProcess;

    /// All memory, and what is available.
    pub(super) fn memory_bytes() -> Option<(u64, u64)> {
        let mut status = MEMORYSTATUSEX {
            dwLength: size_of::<MEMORYSTATUSEX>() as u32,
            ..Default::default()
        };
        // SAFETY: the structure is there for the length of the call and says its own size.
        let told = unsafe { GlobalMemoryStatusEx(&mut status) };
        (told != 0).then_some((status.ullTotalPhys, status.ullAvailPhys))
    }

    pub(super) fn resident_bytes() -> Option<u64> {
        Some(counters()?.WorkingSetSize as u64)
    }

    pub(super) fn peak_bytes() -> Option<u64> {
        Some(counters()?.PeakWorkingSetSize as u64)
    }

    fn counters() -> Option<PROCESS_MEMORY_COUNTERS> {
        let size = size_of::<PROCESS_MEMORY_COUNTERS>() as u32;
        let mut counters = PROCESS_MEMORY_COUNTERS {
            cb: size,
            ..Default::default()
        };
        // SAFETY: the structure is there for the length of the call and of the size said; the handle is a constant.
        let told = unsafe { K32GetProcessMemoryInfo(GetCurrentProcess(), &mut counters, size) };
        (told != 0).then_some(counters)
    }
}

#[cfg(not(any(target_os = "linux", windows)))]
mod system {
    pub(super) fn memory_bytes() -> Option<(u64, u64)> {
        None
    }

    pub(super) fn resident_bytes() -> Option<u64> {
        None
    }

    pub(super) fn peak_bytes() -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::Machine;
    #[cfg(target_os = "linux")]
    use super::{resident_bytes, system::field};

    #[test]
    #[cfg(target_os = "linux")]
    fn a_field_is_found_by_its_whole_name_and_read_in_bytes() {
        let text = "MemTotal:       24684112 kB\nMemFree:          843200 kB\nMemAvailable:   22661120 kB\nHugePages_Total:   3\n";
        assert_eq!(field(text, "MemTotal:"), Some(24_684_112 * 1024));
        assert_eq!(field(text, "MemAvailable:"), Some(22_661_120 * 1024));
        assert_eq!(field(text, "HugePages_Total:"), None);
        assert_eq!(field(text, "Mem"), None);
        assert_eq!(
            field("MemTotal: 99999999999999999999 kB", "MemTotal:"),
            None
        );
    }

    #[test]
    fn what_others_hold_is_the_rest_and_never_less_than_nothing() {
        let machine = |total, available, process| Machine {
            total_bytes: total,
            available_bytes: available,
            process_bytes: process,
        };
        assert_eq!(machine(100, 60, 10).others_bytes(), 30);
        assert_eq!(machine(100, 60, 10).room_bytes(), 70);
        assert_eq!(machine(100, 90, 20).others_bytes(), 0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn memory_that_is_written_is_counted() {
        const LEN: usize = 64 << 20;
        let before = resident_bytes().expect("known on Linux");
        let bytes = vec![1u8; LEN];
        let after = resident_bytes().expect("known on Linux");
        assert!(std::hint::black_box(&bytes).len() == LEN);
        assert!(
            after >= before + LEN as u64 / 2,
            "{before} bytes before, {after} after"
        );
        let machine = Machine::now().expect("known on Linux");
        assert!(machine.total_bytes > machine.available_bytes);
    }
}
