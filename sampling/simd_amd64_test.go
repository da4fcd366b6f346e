package sampling

func setSIMD(on bool) { simd = on }

func setSIMD512(on bool) { simd512 = on }
