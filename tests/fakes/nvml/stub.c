/* A driver library that has nothing but its name. */
int airlock_stand_in;
