// Products with weights in Q5K. Each format has a file, so that a driver compiles only what a model needs.
#include "product_kernels.cuh"

PRODUCT_KERNELS(Q5K, q5k)
