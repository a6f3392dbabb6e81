// Products with weights in Q6K. Each format has a file, so that a driver compiles only what a model needs.
#include "product_kernels.cuh"

PRODUCT_KERNELS(Q6K, q6k)
