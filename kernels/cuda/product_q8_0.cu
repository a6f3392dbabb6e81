// Products with weights in Q8_0. Each format has a file, so that a driver compiles only what a model needs.
#include "product_kernels.cuh"

PRODUCT_KERNELS(Q8_0, q8_0)
