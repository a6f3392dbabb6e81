//! Gathering and scattering slots.

use ptx_interpreter::Memory;

use super::device::{ORDERS, run};
use crate::cuda::copy_blocks;

#[test]
fn a_stretch_of_some_slots_is_gathered_and_scattered_and_nothing_else_is_touched() {
    for (slot_bytes, range) in [(48, 0..48), (20_000, 1600..18_000), (40_000, 16..39_952)] {
        for to_slots in [false, true] {
            let mut memory = Memory::new();
            let bytes = |seed: usize, len: usize| -> Vec<u8> {
                (0..len)
                    .map(|i| ((i * 31 + seed * 97) % 251) as u8)
                    .collect()
            };
            let slots = [0, 1, 2].map(|i| memory.buffer("slot", bytes(i, slot_bytes)));
            let order = [2, 0, 1];
            let addresses: Vec<u64> = order.iter().map(|i| memory.address(slots[*i])).collect();
            let table = memory.longs("slots", &addresses);
            let staging = memory.buffer("staging", bytes(9, 3 * range.len()));
            let (table, staged) = (memory.address(table), memory.address(staging));
            let launch = copy_blocks(table, staged, range.clone(), 3, to_slots).unwrap();
            run(&launch, &mut memory, 75, ORDERS[1]);
            let mut staging_bytes = memory.bytes(staging).chunks(range.len());
            for i in order {
                let (got, staged) = (memory.bytes(slots[i]), staging_bytes.next().unwrap());
                assert_eq!(&got[range.clone()], staged);
                let before = bytes(i, slot_bytes);
                assert_eq!(got[..range.start], before[..range.start]);
                assert_eq!(got[range.end..], before[range.end..]);
                assert_eq!(got[range.clone()] == before[range.clone()], !to_slots);
            }
        }
    }
}
