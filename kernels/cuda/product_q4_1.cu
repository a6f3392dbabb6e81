// Products with weights in Q4_1. Each format has a file, so that a driver compiles only what a model needs.
#include "product_kernels.cuh"

PRODUCT_KERNELS(Q4_1, q4_1)
