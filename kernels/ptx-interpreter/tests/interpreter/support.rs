//! Kernels around a few instructions.

use ptx_interpreter::{Argument, Error, Fault, Launch, Memory, Module, Order};

const ORDERS: [Order; 4] = [
    Order::Forward,
    Order::Backward,
    Order::Random(1),
    Order::Random(2),
];

/// A kernel `k` with one parameter, the address of its output in %rd0, and that of this thread's word in %rd1.
pub fn kernel(declared: &str, body: &str) -> String {
    format!(
        ".version 9.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry k(
	.param .u64 k_param_0
)
{{
	.reg .pred %p<10>;
	.reg .b16 %rs<20>;
	.reg .b32 %r<40>;
	.reg .f32 %f<40>;
	.reg .b64 %rd<20>;
	.reg .f64 %fd<10>;
	{declared}
	ld.param.u64 %rd0, [k_param_0];
	cvta.to.global.u64 %rd0, %rd0;
	mov.u32 %r0, %tid.x;
	mul.wide.u32 %rd1, %r0, 4;
	add.s64 %rd1, %rd0, %rd1;
{body}
	ret;
}}
"
    )
}

/// What a block of threads writes, one word each, in every order the same.
pub fn words(threads: u32, declared: &str, body: &str) -> Result<Vec<u32>, Error> {
    let module = Module::parse(&kernel(declared, body))?;
    let mut results = ORDERS.map(|order| {
        let mut memory = Memory::new();
        let out = memory.uninitialised("out", threads as usize * 4);
        let launch = Launch {
            grid: [1; 3],
            block: [threads, 1, 1],
            shared_bytes: 4 * threads,
            arguments: &[Argument::Buffer(out)],
            order,
        };
        module.run("k", &launch, &mut memory)?;
        Ok(memory.read_words(out))
    });
    let first = results[0].clone();
    if first.is_ok() {
        for other in &mut results {
            assert_eq!(*other, first);
        }
    }
    first
}

/// The word of a thread alone among its warp.
pub fn word(body: &str) -> u32 {
    let body = format!("{body}\n st.global.u32 [%rd1], %r1;");
    words(32, "", &body).unwrap()[0]
}

/// The float of a thread.
pub fn float(body: &str) -> f32 {
    f32::from_bits(word(&format!("{body}\n mov.b32 %r1, %f1;")))
}

/// What a block does wrong.
pub fn fault(threads: u32, declared: &str, body: &str) -> Fault {
    match words(threads, declared, body) {
        Err(Error::Fault { fault, .. }) => fault,
        other => panic!("no fault but {other:?}"),
    }
}
