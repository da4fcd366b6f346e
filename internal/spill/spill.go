// Package spill makes memory that lies in files, which the system writes out, and reads again, where there is too little memory for all of it.
package spill
