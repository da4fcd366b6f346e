// Package cuda runs the kernels of training on NVIDIA devices: those of compute/cpu in
// float32, for the cpu.Exec that is told to use a Device's Queue. It talks to the
// driver's library, libcuda.so.1, which it loads when it is first asked for a device;
// it needs neither cgo nor a toolkit. The kernels are in package kernels.
//
// # Memory
//
// A Queue hands out device memory as Go slices over device addresses (Alloc), which the
// host must not read or write; Upload and Download copy. Host memory that a kernel is
// given as an operand that it only reads, such as a block's arrays, ids and weights, is
// uploaded when it is first used, and known by its address until Reset: it must not
// change before.
//
// # Order of sums
//
// As in compute/cpu the order in which numbers are added is a function of shapes alone;
// grids and parts of sums are, too, whatever the device. No float is added atomically.
// So results are repeatable bit for bit. They differ from the processor's in the last
// bits where sums are cut differently.
//
// # Errors
//
// Kernels run after the call that launched them returns. What fails then, or what the
// driver refuses in a kernel's call, is a panic with an *Error, which compute's engines
// turn into their error. A device that is lost fails every call from then on; its
// memory is given back when it is closed.
package cuda
