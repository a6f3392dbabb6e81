//! What a program that does not wait finds, with a kernel whose first thread adds one to a word.

use crate::calls;
use crate::device::Device;
use crate::fault::{Fault, Result};
use crate::stream::Kind;
use crate::work::Launch;

const ADD_ONE: &str = ".version 9.0
.target sm_75
.address_size 64
.visible .entry add_one(
	.param .u64 add_one_param_0
)
{
	.reg .pred 	%p<2>;
	.reg .b32 	%r<4>;
	.reg .b64 	%rd<3>;

	mov.u32 	%r3, %tid.x;
	setp.ne.s32 	%p1, %r3, 0;
	@%p1 bra 	$L__BB0_2;
	ld.param.u64 	%rd1, [add_one_param_0];
	cvta.to.global.u64 	%rd2, %rd1;
	ld.global.u32 	%r1, [%rd2];
	add.s32 	%r2, %r1, 1;
	st.global.u32 	[%rd2], %r2;
$L__BB0_2:
	ret;
}
";

/// A device with a stream for kernels, one for copies, a word that is 0, and one of pinned memory.
struct Bench {
    device: Device,
    kernels: usize,
    copies: usize,
    word: u64,
    pinned: *mut u32,
}

impl Bench {
    fn new(ahead: Kind) -> Bench {
        let mut device = Device::default();
        let (kernels, copies) = (device.streams.open(ahead), device.streams.open(ahead));
        let module = device.load(ADD_ONE).unwrap();
        assert_eq!(device.function(module, "add_one").unwrap(), 1);
        let word = device.allocate(4).unwrap();
        device.fill(kernels, word, 0, 4).unwrap();
        device.synchronize(kernels).unwrap();
        let pinned = device.pin(4).unwrap().cast();
        let mut bench = Bench {
            device,
            kernels,
            copies,
            word,
            pinned,
        };
        bench.set(10);
        bench
    }

    fn set(&mut self, value: u32) {
        // SAFETY: a word of pinned memory.
        unsafe { self.pinned.write(value) };
    }

    fn get(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.pinned.read() }
    }

    fn add_one_to(&mut self, stream: usize, word: u64) -> Result<()> {
        let launch = Launch {
            function: 1,
            grid: [1; 3],
            block: [32, 1, 1],
            shared_bytes: 0,
            values: vec![word],
        };
        self.device.launch(stream, launch)
    }

    fn add_one(&mut self) -> Result<()> {
        self.add_one_to(self.kernels, self.word)
    }

    fn copy_in(&mut self) -> Result<()> {
        // SAFETY: a word, which stays.
        unsafe {
            self.device
                .write(self.copies, self.word, self.pinned.cast(), 4)
        }
    }

    fn copy_out(&mut self) -> Result<()> {
        // SAFETY: as above.
        unsafe {
            self.device
                .read(self.copies, self.pinned.cast(), self.word, 4)
        }
    }

    /// Lets a stream wait for all that another was asked for.
    fn follow(&mut self, stream: usize, other: usize) {
        let event = self.device.streams.new_event();
        self.device.record(event, other).unwrap();
        self.device.wait(stream, event).unwrap();
    }

    /// The word, when everything is done.
    fn word(&mut self) -> u32 {
        for end in self.device.streams.ends() {
            self.device.advance(Some(end));
        }
        let mut bytes = [0; 4];
        // SAFETY: a word of memory that is not pinned.
        unsafe {
            self.device
                .read(self.copies, bytes.as_mut_ptr(), self.word, 4)
        }
        .unwrap();
        u32::from_le_bytes(bytes)
    }
}

#[test]
fn a_kernel_that_does_not_wait_for_a_copy_runs_before_it_and_one_that_waits_after_it() {
    for (waits, expected) in [(false, 10), (true, 11)] {
        let mut bench = Bench::new(Kind::Kernels);
        bench.copy_in().unwrap();
        if waits {
            bench.follow(bench.kernels, bench.copies);
        }
        bench.add_one().unwrap();
        assert_eq!(bench.word(), expected);
    }
}

#[test]
fn a_copy_that_does_not_wait_for_a_kernel_runs_before_it_and_one_that_waits_after_it() {
    for (waits, expected) in [(false, 11), (true, 10)] {
        let mut bench = Bench::new(Kind::Copies);
        bench.add_one().unwrap();
        if waits {
            bench.follow(bench.copies, bench.kernels);
        }
        bench.copy_in().unwrap();
        assert_eq!(bench.word(), expected);
    }
}

#[test]
fn pinned_memory_is_read_and_written_when_a_copy_runs_and_not_when_it_is_asked_for() {
    for (ahead, given) in [(Kind::Kernels, 20), (Kind::Copies, 10)] {
        let mut bench = Bench::new(ahead);
        bench.copy_in().unwrap();
        bench.set(20);
        assert_eq!(bench.word(), given);
    }
    let mut bench = Bench::new(Kind::Kernels);
    bench.copy_out().unwrap();
    assert_eq!(bench.get(), 10, "nobody waited");
    bench.device.synchronize(bench.copies).unwrap();
    assert_eq!(bench.get(), 0);
}

#[test]
fn memory_that_is_not_pinned_is_taken_over_when_a_copy_is_asked_for() {
    let mut bench = Bench::new(Kind::Kernels);
    let mut bytes = 30u32.to_le_bytes();
    // SAFETY: a word.
    unsafe {
        bench
            .device
            .write(bench.copies, bench.word, bytes.as_ptr(), 4)
    }
    .unwrap();
    bytes.fill(0xff);
    assert_eq!(bench.word(), 30);
}

#[test]
fn an_event_stands_for_its_last_record_at_the_time_of_the_wait() {
    let mut bench = Bench::new(Kind::Kernels);
    let event = bench.device.streams.new_event();
    bench.device.record(event, bench.copies).unwrap();
    bench.device.wait(bench.kernels, event).unwrap();
    bench.copy_in().unwrap();
    bench.device.record(event, bench.copies).unwrap();
    bench.add_one().unwrap();
    bench.device.wait(bench.kernels, event).unwrap();
    bench.add_one().unwrap();
    assert_eq!(bench.word(), 11, "the first did not wait for the copy");
}

#[test]
fn what_goes_wrong_is_told_by_the_next_call_and_by_every_later_one() {
    for ahead in [Kind::Kernels, Kind::Copies] {
        let mut bench = Bench::new(ahead);
        let nowhere = bench.word + 4;
        bench.add_one_to(bench.kernels, nowhere).unwrap();
        if ahead == Kind::Copies {
            bench.follow(bench.copies, bench.kernels);
            bench.copy_out().unwrap();
        }
        for _ in 0..2 {
            let told = bench.device.synchronize(bench.kernels);
            assert!(matches!(told, Err(Fault::Failed(_))), "{told:?}");
        }
        assert!(bench.add_one().is_err() && bench.copy_in().is_err());
        assert!(bench.device.allocate(4).is_err() && bench.device.free(bench.word).is_err());
        assert_eq!(bench.get(), 10, "what had not run never does");
    }
    // What reads what nobody wrote, too.
    let mut bench = Bench::new(Kind::Kernels);
    bench.word = bench.device.allocate(4).unwrap();
    bench.copy_out().unwrap();
    assert!(bench.device.synchronize(bench.copies).is_err());
}

#[test]
fn memory_is_given_back_when_everything_is_done_and_pinned_memory_at_once() {
    for ahead in [Kind::Kernels, Kind::Copies] {
        let mut bench = Bench::new(ahead);
        bench.copy_in().unwrap();
        bench.follow(bench.kernels, bench.copies);
        bench.add_one().unwrap();
        bench.follow(bench.copies, bench.kernels);
        bench.copy_out().unwrap();
        bench.device.free(bench.word).unwrap();
        assert_eq!(bench.get(), 11);
        assert!(
            bench.add_one().is_ok(),
            "a device does not look at arguments"
        );
        assert!(bench.copy_in().is_err(), "but where a copy goes");
    }
    let mut bench = Bench::new(Kind::Kernels);
    bench.copy_in().unwrap();
    assert!(bench.device.unpin(bench.pinned.addr()).is_err());
}

#[test]
fn what_is_recorded_runs_when_it_is_launched_and_nothing_else_may_be_done_with_its_stream() {
    let mut bench = Bench::new(Kind::Copies);
    let other = bench.device.streams.open(Kind::Copies);
    bench.device.begin_recording(other).unwrap();
    bench.add_one_to(other, bench.word).unwrap();
    // Other streams go on.
    bench.add_one().unwrap();
    bench.copy_in().unwrap();
    let graph = bench.device.end_recording(other).unwrap();
    assert_eq!(bench.word(), 11);
    bench.device.replay(graph, bench.kernels).unwrap();
    assert_eq!(bench.word(), 12);
    let event = bench.device.streams.new_event();
    type Spoil<'a> = &'a dyn Fn(&mut Device) -> Result<()>;
    let spoil: [Spoil; 5] = [
        &|device| device.record(event, other),
        &|device| device.wait(other, event),
        &|device| device.synchronize(other),
        // On the thread that records, nothing that may wait.
        &|device| device.allocate(4).map(drop),
        &|device| device.synchronize(bench.kernels),
    ];
    for spoil in spoil {
        let device = &mut bench.device;
        device.begin_recording(other).unwrap();
        assert!(matches!(spoil(device), Err(Fault::Recording(_))));
        assert!(device.end_recording(other).is_err());
    }
    std::thread::scope(|scope| {
        bench.device.begin_recording(other).unwrap();
        let (device, kernels) = (&mut bench.device, bench.kernels);
        scope.spawn(move || device.synchronize(kernels).unwrap());
    });
    assert!(bench.device.end_recording(other).is_ok(), "another thread");
    std::thread::scope(|scope| {
        bench.device.begin_recording(other).unwrap();
        let device = &mut bench.device;
        scope.spawn(move || assert!(device.synchronize(other).is_err()));
    });
    assert!(bench.device.end_recording(other).is_err(), "nobody may");
}

#[test]
fn a_thread_must_make_a_context_its_own_that_somebody_holds() {
    let mut context = std::ptr::null_mut();
    let mut stream = std::ptr::null_mut();
    // SAFETY: places for what is answered; the device is the one of this program.
    unsafe {
        assert_eq!(calls::cuStreamCreate(&raw mut stream, 1), 201);
        calls::cuDevicePrimaryCtxRetain(&raw mut context, 0);
        assert_eq!(calls::cuStreamCreate(&raw mut stream, 1), 201);
        calls::cuCtxSetCurrent(context);
        assert_eq!(calls::cuStreamCreate(&raw mut stream, 1), 0);
        let elsewhere = std::thread::spawn(|| calls::cuMemFree_v2(1)).join();
        assert_eq!(elsewhere.unwrap(), 201);
        calls::cuDevicePrimaryCtxRelease_v2(0);
        assert_eq!(calls::cuStreamDestroy_v2(stream), 201);
    }
}
