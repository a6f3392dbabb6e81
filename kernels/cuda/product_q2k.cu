// Products with weights in Q2K. Each format has a file, so that a driver compiles only what a model needs.
#include "product_kernels.cuh"

PRODUCT_KERNELS(Q2K, q2k)
